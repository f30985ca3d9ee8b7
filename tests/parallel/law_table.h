/* law_table.h - the state hashes that every machine must reach after 30 steps with batch 16 on
 * generated data. A hash changes only if the arithmetic changes on purpose, in a commit that says
 * why, after a run on both arm64 and x86-64. */
#ifndef LK_TESTS_LAW_TABLE_H
#define LK_TESTS_LAW_TABLE_H

#include "law.h"

static const law_case law_table[] = {
    {"cnn", LAW_MNIST, LK_BN_MODE_BATCH, "adadelta", 1.0, 30, 16, 16, .hash = 0x75a618c7b6298412},
    {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, 30, 16, 16, .hash = 0xa4843b8e8d8ba1a0},
    {"resnet20", LAW_CIFAR, LK_BN_MODE_BATCH, "sgd:momentum=.9,weight_decay=1e-4", 0.1, 30, 16, 16,
     .hash = 0x18f8d687caaaca52},
    {"resnet20", LAW_CIFAR, LK_BN_MODE_SHARD, "sgd:momentum=.9,nesterov=1", 0.01, 30, 16, 4,
     .hash = 0x6e543a08516e71cd},
    {"resnet20:width=4", {3, 16, 16, 10}, LK_BN_MODE_BATCH, "adam", 1e-3, 30, 16, 16, .hash = 0x3017e29b1ec40eff},
    {"resnet20:width=4", {3, 16, 16, 10}, LK_BN_MODE_SHARD, "adadelta", 1.0, 30, 16, 5, .hash = 0x28727a991380a673},
    {"ops", LAW_ODD, LK_BN_MODE_BATCH, "adamw", 1e-3, 30, 16, 16, .hash = 0x415e4bcc8d36a33a, .label_smoothing = 0.1},
    {"leaky", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.05, 30, 16, 16, .hash = 0xdcc6d9c656c8878c},
    {"gates", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 30, 16, 16, .hash = 0xb2a02d151b8fd3e5},
    {"norms", LAW_ODD, LK_BN_MODE_BATCH, "adamw", 1e-3, 30, 16, 16, .hash = 0x34c6bef606dbd378},
    {"attention", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 30, 16, 16, .hash = 0xb9220db66b351dc6},
    {"upsampled", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.01, 30, 16, 16, .hash = 0xdd44caa3c1e26672},
    {"autoencoder", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-3, 30, 16, 16, .hash = 0x534187136baa8585},
    {"robust", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.05, 30, 16, 16, .hash = 0x3e8a8d89b751ef46},
    {"weighted", LAW_ODD, LK_BN_MODE_BATCH, "adamw", 1e-3, 30, 16, 16, .hash = 0x84e4ea475bc4a297,
     .label_smoothing = 0.1},
    {"own", LAW_ODD, LK_BN_MODE_BATCH, "adam", 1e-2, 30, 16, 16, .hash = 0x3dd9a24d842ac12a},
    {"windows", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9", 0.01, 30, 16, 16, .hash = 0xf1cf7b6f42632738},
    {"cnn:dropout2d", LAW_MNIST, LK_BN_MODE_BATCH, "adamw:weight_decay=.1", 1e-3, 30, 16, 16,
     .hash = 0x41764110c5111923},
    {"mobilenet_v2:width=.1,cifar", LAW_SMALL, LK_BN_MODE_SHARD, "sgd:momentum=.9", 0.05, 30, 16, 8,
     .hash = 0xe1275040bc2759ce},
    {"pyramidnet:blocks=1,alpha=8", LAW_ODD, LK_BN_MODE_BATCH, "sgd:momentum=.9,weight_decay=1e-4", 0.1, 30, 16, 16,
     .hash = 0xc2eefecce372a4ae},
};

enum { LAW_TABLE = COUNT_OF(law_table) };

#endif
