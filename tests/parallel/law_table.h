/* law_table.h - the state hashes that every machine must reach after 30 steps with batch 16 on
 * generated data. A hash changes only if the arithmetic changes on purpose, in a commit that says
 * why, after a run on both arm64 and x86-64. */
#ifndef LK_TESTS_LAW_TABLE_H
#define LK_TESTS_LAW_TABLE_H

#include "law.h"

static const law_case law_table[] = {
    {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "adadelta", 1.0, 30, 16, 16, .hash = 0x45909df08232b8f0},
    {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, 30, 16, 16, .hash = 0x4377acf1d882ceaf},
    {"resnet20", LAW_CIFAR, LK_BN_MODE_BATCH, "sgd:momentum=.9,weight_decay=1e-4", 0.1, 30, 16, 16,
     .hash = 0xf11c7cbf258ccbf3},
    {"resnet20", LAW_CIFAR, LK_BN_MODE_SHARD, "sgd:momentum=.9,nesterov=1", 0.01, 30, 16, 4,
     .hash = 0x17fea7a4e6c0e7f4},
    {"resnet20:width=4", {3, 16, 16, 10}, LK_BN_MODE_BATCH, "adam", 1e-3, 30, 16, 16, .hash = 0x706cac9fa3e1d586},
    {"resnet20:width=4", {3, 16, 16, 10}, LK_BN_MODE_SHARD, "adadelta", 1.0, 30, 16, 5, .hash = 0x42d777fb3ba341d3},
    {"ops", LAW_ODD, LK_BN_MODE_BATCH, "adamw", 1e-3, 30, 16, 16, .hash = 0x01cbf559117f8e22, .label_smoothing = 0.1},
    {"leaky", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.05, 30, 16, 16, .hash = 0xd3070911be0f7894},
    {"gates", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 30, 16, 16, .hash = 0x6296f7bab1a634fc},
    {"norms", LAW_ODD, LK_BN_MODE_BATCH, "adamw", 1e-3, 30, 16, 16, .hash = 0x34c6bef606dbd378},
    {"attention", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 30, 16, 16, .hash = 0xb9220db66b351dc6},
    {"upsampled", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.01, 30, 16, 16, .hash = 0x89d1b7762c9e3038},
    {"autoencoder", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 30, 16, 16, .hash = 0x534187136baa8585},
    {"robust", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.05, 30, 16, 16, .hash = 0x09fca451c1bcea87},
    {"weighted", LAW_ODD, LK_BN_MODE_BATCH, "adamw", 1e-3, 30, 16, 16, .hash = 0x582575ec40e01be4,
     .label_smoothing = 0.1},
    {"own", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-2, 30, 16, 16, .hash = 0x3dd9a24d842ac12a},
    {"windows", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.01, 30, 16, 16, .hash = 0xf1cf7b6f42632738},
    {"cnn:dropout2d", LAW_MNIST, LK_BN_MODE_BATCH, "adamw:weight_decay=.1", 1e-3, 30, 16, 16,
     .hash = 0x9a53c6231810309f},
    {"mobilenet_v2:width=.1,cifar", LAW_SMALL, LK_BN_MODE_SHARD, "sgd:momentum=.9", 0.05, 30, 16, 8,
     .hash = 0x2156ad59795cabad},
    {"pyramidnet:blocks=1,alpha=8", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9,weight_decay=1e-4", 0.1, 30, 16, 16,
     .hash = 0xcac62a40d2335710},
    {"resnet20:width=32", {3, 14, 14, 10}, LK_BN_MODE_SHARD, "adam", 1e-3, 4, 8, 3, .hash = 0x1155c763c5e2a593},
    {"resnet20:width=96", LAW_TINY, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.01, 2, 4, 4, .hash = 0xb513b56fab65e0dd},
    {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "adadelta", 1.0, 30, 16, 16, .hash = 0xc35f1a8e32d59b7f,
     .conv = LK_CONV_MODE_DIRECT},
    {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "adadelta", 1.0, 10, 16, 16, .hash = 0x4aa7ff3735764615,
     .precision = LK_PRECISION_BF16},
    {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, 30, 16, 16, .hash = 0x7c5b551fd19214b5,
     .precision = LK_PRECISION_BF16},
    {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_SHARD, "adam", 1e-3, 30, 16, 5, .hash = 0x9462d15418004ff0,
     .precision = LK_PRECISION_BF16},
    {"windows", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.01, 30, 16, 16, .hash = 0x01584100e113a48a,
     .precision = LK_PRECISION_BF16},
    {"mobilenet_v2:width=.1,cifar", LAW_SMALL, LK_BN_MODE_SHARD, "sgd:momentum=.9", 0.05, 30, 16, 8,
     .hash = 0x1918940456e3ac99, .precision = LK_PRECISION_BF16},
};

enum { LAW_TABLE = COUNT_OF(law_table) };

#endif
