#include "autodist/job/gpus.h"

#include <gtest/gtest.h>

namespace autodist::job {
namespace {

Environment showing(const std::string& devices) {
  return environment_of({"CUDA_VISIBLE_DEVICES=" + devices});
}

TEST(Gpus, EveryReasonForAMissingGpuIsNamed) {
  const auto lacking = [](bool for_cuda, std::uint32_t count, bool has_driver) {
    return lacking_gpu({for_cuda, count, has_driver}, 1, "2.13.0");
  };
  EXPECT_EQ(lacking(false, 0, true),
            "this libtorch (2.13.0) is built for CPUs. Build with a torch for CUDA "
            "(docs/pytorch.md)");
  EXPECT_EQ(
      lacking(true, 0, false),
      "libtorch finds no GPU here: there is no driver of NVIDIA's (/proc/driver/nvidia is not "
      "there). Install it");
  EXPECT_EQ(
      lacking(true, 0, true),
      "libtorch finds no GPU here, though there is a driver. Look at CUDA_VISIBLE_DEVICES and "
      "`nvidia-smi` (an old driver needs an older torch)");
  EXPECT_EQ(lacking(true, 1, true), "there is 1 here (GPU 0). Correct its list of gpus");
  EXPECT_EQ(lacking_gpu({true, 2, true}, 2, "2.13.0"),
            "there are 2 here (GPU 0 to 1). Correct its list of gpus");
  EXPECT_EQ(lacking(true, 2, true), "");
}

TEST(Gpus, HaveTheNamesThatTheEnvironmentShows) {
  EXPECT_EQ(rank_gpu(1, {}, environment_of({})).name, "1");
  EXPECT_EQ(rank_gpu(0, {}, showing("3")).name, "3");
  EXPECT_EQ(rank_gpu(1, {}, showing("GPU-aa, GPU-bb")).name, "GPU-bb");
}

TEST(Gpus, AGpusModelIsKnownWhereAllAreAlike) {
  const Environment none = environment_of({});
  EXPECT_EQ(rank_gpu(0, {"H100", "H100"}, none).model, "H100");
  EXPECT_EQ(rank_gpu(0, {"H100", "A100"}, none).model, "");
  EXPECT_EQ(rank_gpu(0, {}, none).model, "");
  const RankGpu gpu = parse_gpu(to_string(rank_gpu(2, {"NVIDIA H100"}, none)));
  EXPECT_EQ(gpu.name, "2");
  EXPECT_EQ(gpu.model, "NVIDIA H100");
  EXPECT_EQ(parse_gpu(to_string(RankGpu{})).name, "");
}

TEST(Gpus, GpusThatRanksShareAreReported) {
  const cluster::Cluster cluster = cluster::parse_resource_spec(
      "nodes: [{address: a, gpus: [0, 1], chief: true, network_bandwidth: 1}, {address: b, gpus: "
      "[0, 1], network_bandwidth: 1, ssh_config: s}]\nssh: {s: {}}",
      "c");
  const std::vector<cluster::Place> places = cluster::ranks_of(cluster);
  EXPECT_EQ(sharing_line(cluster, places, {{"0", ""}, {"1", ""}, {"0", ""}, {"1", ""}}), "");
  EXPECT_EQ(
      sharing_line(cluster, places, {{"0", ""}, {"0", ""}, {"0", ""}, {"1", ""}}),
      "ranks 0, 1 on GPU 0 of a: they share it, and take turns. If that is not meant, look at "
      "CUDA_VISIBLE_DEVICES.");
  EXPECT_EQ(sharing_line(cluster, places, {{"", ""}, {"", ""}, {"", ""}, {"", ""}}), "");
}

TEST(Gpus, RanksOnGpusAndOthersOnCpusAreReported) {
  const cluster::Cluster cluster = cluster::parse_resource_spec(
      "nodes: [{address: a, gpus: [0, 1], chief: true, network_bandwidth: 1}, {address: b, cpus: "
      "[0], network_bandwidth: 1, ssh_config: s}]\nssh: {s: {}}",
      "c");
  EXPECT_EQ(mixed_line(cluster::ranks_of(cluster)),
            "2 of 3 ranks compute on GPUs, the others on CPUs: a step takes as long as the slowest "
            "of them (docs/gpus.md)");
  EXPECT_EQ(mixed_line(cluster::ranks_of(cluster, /*cpu_only=*/true)), "");
  cluster::Cluster gpus = cluster;
  gpus.nodes.pop_back();
  EXPECT_EQ(mixed_line(cluster::ranks_of(gpus)), "");
}

TEST(Gpus, UnusedGpusAreReported) {
  EXPECT_EQ(unused_line(0), "");
  EXPECT_EQ(unused_line(1),
            "1 GPU is here and not used; list it with gpus: in a cluster file (docs/gpus.md)");
  EXPECT_EQ(unused_line(2),
            "2 GPUs are here and not used; list them with gpus: in a cluster file (docs/gpus.md)");
}

}  // namespace
}  // namespace autodist::job
