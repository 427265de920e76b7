#include "autodist/models/data.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "autodist/base/error.h"
#include "autodist/base/file.h"

namespace autodist::models {
namespace {

namespace fs = std::filesystem;

std::string npy(const std::string& descr, const std::string& shape, const std::string& data) {
  const std::string header =
      "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + shape + "), }\n";
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size() % 256);
  bytes += static_cast<char>(header.size() / 256);
  return bytes + header + data;
}

class Directory : public testing::Test {
 protected:
  Directory() : path_(fs::temp_directory_path() / ("autodist_data_" + std::to_string(::getpid()))) {
    fs::create_directory(path_);
  }
  ~Directory() override { fs::remove_all(path_); }

  void put(const std::string& name, const std::string& bytes) {
    write_file_atomically((path_ / name).string(), bytes);
  }
  std::string refusal() {
    try {
      read_directory(path_.string(), torch::kFloat32);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

  fs::path path_;
};

TEST(Digits, AFifthOfTheSamplesIsHeldOut) {
  const Digits data = digits(torch::kFloat32);
  EXPECT_EQ(data.training.size(), 1438);
  EXPECT_EQ(data.held_out.size(), 359);
  const Batch first = data.training.batch({0, 1});
  EXPECT_EQ(first[0].sizes(), (std::vector<std::int64_t>{2, 1, 8, 8}));
  EXPECT_EQ(first[0].max().item<float>(), 1.0f);
  EXPECT_EQ(first[1].scalar_type(), torch::kInt64);
}

TEST_F(Directory, NumpyFilesBecomeTensors) {
  const float values[] = {1, 2, 3, 4};
  const std::int32_t labels[] = {7, 8};
  put("x0.npy", npy("<f4", "2, 2", {reinterpret_cast<const char*>(values), sizeof values}));
  put("x1.npy", npy("<i4", "2,", {reinterpret_cast<const char*>(labels), sizeof labels}));
  const Dataset data = read_directory(path_.string(), torch::kFloat64);
  ASSERT_EQ(data.size(), 2);
  const Batch batch = data.batch({1});
  EXPECT_TRUE(batch[0].equal(torch::tensor({{3.0, 4.0}}, torch::kFloat64)));
  EXPECT_EQ(batch[1].item<std::int64_t>(), 8);
}

TEST_F(Directory, WhatCannotBeUsedIsRefusedByName) {
  EXPECT_NE(refusal().find("no x0.npy"), std::string::npos);
  put("x0.npy", "rubbish rubbish");
  EXPECT_NE(refusal().find("not a NumPy file"), std::string::npos);
  put("x0.npy", npy("<f4", "2, 2", "1234"));
  EXPECT_NE(refusal().find("truncated"), std::string::npos);
  put("x0.npy", npy("<f4", "4611686018427387904, 4", "1234"));
  EXPECT_NE(refusal().find("truncated"), std::string::npos);
  put("x0.npy", npy(">f4", "1,", "1234"));
  EXPECT_NE(refusal().find("'>f4' cannot be used"), std::string::npos);
  put("x0.npy", npy("<f4", "1,", "1234"));
  put("x1.npy", npy("<f4", "2,", "12345678"));
  EXPECT_NE(refusal().find("2 samples, but x0.npy has 1"), std::string::npos);
}

}  // namespace
}  // namespace autodist::models
