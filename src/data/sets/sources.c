/* sources.c - the tables of published files and servers.
 *
 * The sums of downloads are their publishers' MD5, and SHA-256 of the same files; the sums of
 * contents are SHA-256. */
#include "data/sets/sources.h"

#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const lk_source_part mnist_parts[] = {
    {NULL,
     "train-images-idx3-ubyte",
     "train-images.idx3-ubyte",
     {47040016, NULL, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"}},
    {NULL,
     "train-labels-idx1-ubyte",
     "train-labels.idx1-ubyte",
     {60008, NULL, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"}},
    {NULL,
     "t10k-images-idx3-ubyte",
     "t10k-images.idx3-ubyte",
     {7840016, NULL, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"}},
    {NULL,
     "t10k-labels-idx1-ubyte",
     "t10k-labels.idx1-ubyte",
     {10008, NULL, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"}},
};

static const lk_source_file mnist_files[] = {
    {"train-images-idx3-ubyte.gz",
     {9912422, "f68b3c2dcbeaaa9fbdd348bbdeb94873", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"},
     &mnist_parts[0],
     1},
    {"train-labels-idx1-ubyte.gz",
     {28881, "d53e105ee54ea40749a09fcbcd1e9432", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"},
     &mnist_parts[1],
     1},
    {"t10k-images-idx3-ubyte.gz",
     {1648877, "9fb629c4189551a2d022fa330f9573f3", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"},
     &mnist_parts[2],
     1},
    {"t10k-labels-idx1-ubyte.gz",
     {4542, "ec29112dd5afa0611ce80d1b7f02629c", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"},
     &mnist_parts[3],
     1},
};

static const lk_source_part fashion_parts[] = {
    {NULL,
     "train-images-idx3-ubyte",
     "train-images.idx3-ubyte",
     {47040016, NULL, "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"}},
    {NULL,
     "train-labels-idx1-ubyte",
     "train-labels.idx1-ubyte",
     {60008, NULL, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"}},
    {NULL,
     "t10k-images-idx3-ubyte",
     "t10k-images.idx3-ubyte",
     {7840016, NULL, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"}},
    {NULL,
     "t10k-labels-idx1-ubyte",
     "t10k-labels.idx1-ubyte",
     {10008, NULL, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"}},
};

static const lk_source_file fashion_files[] = {
    {"train-images-idx3-ubyte.gz",
     {26421880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d", "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"},
     &fashion_parts[0],
     1},
    {"train-labels-idx1-ubyte.gz",
     {29515, "25c81989df183df01b3e8a0aad5dffbe", "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"},
     &fashion_parts[1],
     1},
    {"t10k-images-idx3-ubyte.gz",
     {4422102, "bef4ecab320f06d8554ea6380940ec79", "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"},
     &fashion_parts[2],
     1},
    {"t10k-labels-idx1-ubyte.gz",
     {5148, "bb300cfdad3c16e7a12a480ee83cd310", "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"},
     &fashion_parts[3],
     1},
};

static const lk_source_part cifar10_parts[] = {
    {"cifar-10-batches-bin/data_batch_1.bin",
     "data_batch_1.bin",
     NULL,
     {30730000, NULL, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"}},
    {"cifar-10-batches-bin/data_batch_2.bin",
     "data_batch_2.bin",
     NULL,
     {30730000, NULL, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"}},
    {"cifar-10-batches-bin/data_batch_3.bin",
     "data_batch_3.bin",
     NULL,
     {30730000, NULL, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"}},
    {"cifar-10-batches-bin/data_batch_4.bin",
     "data_batch_4.bin",
     NULL,
     {30730000, NULL, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"}},
    {"cifar-10-batches-bin/data_batch_5.bin",
     "data_batch_5.bin",
     NULL,
     {30730000, NULL, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"}},
    {"cifar-10-batches-bin/test_batch.bin",
     "test_batch.bin",
     NULL,
     {30730000, NULL, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"}},
};

static const lk_source_file cifar10_files[] = {
    {"cifar-10-binary.tar.gz",
     {170052171, "c32a1d4ab5d03f1284b67883e8d87530",
      "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
     cifar10_parts,
     COUNT(cifar10_parts)},
};

static const lk_source_part cifar100_parts[] = {
    {"cifar-100-binary/train.bin",
     "train.bin",
     NULL,
     {153700000, NULL, "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"}},
    {"cifar-100-binary/test.bin",
     "test.bin",
     NULL,
     {30740000, NULL, "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"}},
};

static const lk_source_file cifar100_files[] = {
    {"cifar-100-binary.tar.gz",
     {168513733, "03b5dce01913d631647c71ecec9e9cb8",
      "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"},
     cifar100_parts,
     COUNT(cifar100_parts)},
};

static const lk_source sources[] = {
    {.name = "mnist",
     .folder = "mnist",
     .servers = {"https://ossci-datasets.s3.amazonaws.com/mnist/",
                 "https://storage.googleapis.com/cvdf-datasets/mnist/"},
     .files = mnist_files,
     .file_count = COUNT(mnist_files)},
    {.name = "fashion-mnist",
     .folder = "fashion-mnist",
     .servers = {"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"},
     .files = fashion_files,
     .file_count = COUNT(fashion_files)},
    {.name = "cifar10",
     .folder = "cifar10",
     .servers = {"https://www.cs.toronto.edu/~kriz/"},
     .files = cifar10_files,
     .file_count = COUNT(cifar10_files)},
    {.name = "cifar100",
     .folder = "cifar100",
     .servers = {"https://www.cs.toronto.edu/~kriz/"},
     .files = cifar100_files,
     .file_count = COUNT(cifar100_files)},
};

static const struct {
    const char *name, *hint;
} hints[] = {
    {"digits", "built in: nothing to download"},
    {"imagenet", "not free to download: bring your own, with train/CLASS/*.JPEG and val/CLASS/*.JPEG in a folder "
                 "'imagenet' below `data_dir` or $LOCKSTEP_DATA"},
};

const lk_source *lk__source_find(const char *name)
{
    for (size_t i = 0; i < COUNT(sources); i++)
        if (strcmp(sources[i].name, name) == 0)
            return &sources[i];
    return NULL;
}

const char *lk__source_hint(const char *name)
{
    for (size_t i = 0; i < COUNT(hints); i++)
        if (strcmp(hints[i].name, name) == 0)
            return hints[i].hint;
    return "bring your own: put its files below `data_dir` or $LOCKSTEP_DATA";
}

size_t lk__source_bytes(const lk_source *source)
{
    size_t bytes = 0;
    for (size_t i = 0; i < source->file_count; i++)
        bytes += source->files[i].published.bytes;
    return bytes;
}
