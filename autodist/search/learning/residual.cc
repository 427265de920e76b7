#include "autodist/search/learning/residual.h"

#include <xgboost/c_api.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/base/json_complaint.h"
#include "autodist/base/statistics.h"

namespace autodist::search {
namespace {

constexpr int kRounds = 80;
constexpr double kLeastTrust = 2;
constexpr double kMostTrust = 200;
constexpr char kTrain[] = "Train one: autodist dataset train FOLDER -o FILE";

using Json = nlohmann::ordered_json;

// XGBoost answers 0, or keeps a message.
void ok(int answer) { AD_CHECK(answer == 0) << XGBGetLastError(); }

// Rows of features, as XGBoost takes them.
class Matrix {
 public:
  explicit Matrix(const std::vector<const std::vector<double>*>& rows) {
    std::vector<float> values;
    for (const auto* row : rows) values.insert(values.end(), row->begin(), row->end());
    ok(XGDMatrixCreateFromMat(values.data(), rows.size(), feature_names().size(),
                              std::numeric_limits<float>::quiet_NaN(), &handle_));
  }
  ~Matrix() { XGDMatrixFree(handle_); }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;

  [[nodiscard]] DMatrixHandle handle() const { return handle_; }

 private:
  DMatrixHandle handle_ = nullptr;
};

// A cell's pairs grow with the square of its points: each cell counts by its points.
std::vector<double> weights_of(const std::vector<Sample>& samples, const std::vector<Pair>& pairs) {
  std::vector<double> points;
  std::vector<double> per_cell;
  const auto grow = [](std::vector<double>& list, std::size_t at) -> double& {
    if (list.size() <= at) list.resize(at + 1);
    return list[at];
  };
  for (const Sample& sample : samples) grow(points, sample.cell) += 1;
  for (const Pair& pair : pairs) grow(per_cell, samples[pair.slow].cell) += 1;
  std::vector<double> weights;
  for (const Pair& pair : pairs) {
    const std::size_t cell = samples[pair.slow].cell;
    weights.push_back(points[cell] / per_cell[cell]);
  }
  return weights;
}

double loss(const std::vector<Sample>& samples, const std::vector<Pair>& pairs,
            const std::vector<double>& weights, double trust) {
  double sum = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const double margin =
        trust * std::log(samples[pairs[i].slow].simulated / samples[pairs[i].fast].simulated);
    sum += weights[i] *
           (margin > 0 ? std::log1p(std::exp(-margin)) : std::log1p(std::exp(margin)) - margin);
  }
  return sum;
}

// The factor that makes the simulated order most likely, by golden section over its logarithm.
double fit_trust(const std::vector<Sample>& samples, const std::vector<Pair>& pairs,
                 const std::vector<double>& weights) {
  constexpr double kGolden = 0.6180339887498949;
  double low = std::log(kLeastTrust);
  double high = std::log(kMostTrust);
  const auto at = [&](double x) { return loss(samples, pairs, weights, std::exp(x)); };
  while (high - low > 0.02) {
    const double a = high - kGolden * (high - low);
    const double b = low + kGolden * (high - low);
    (at(a) < at(b) ? high : low) = at(a) < at(b) ? b : a;
  }
  return std::exp((low + high) / 2);
}

}  // namespace

class Residual::Trees {
 public:
  Trees() {
    ok(XGBoosterCreate(nullptr, 0, &handle_));
    // Known from the first matrix only where XGBoost trains by its own objective.
    ok(XGBoosterSetParam(handle_, "num_feature", std::to_string(feature_names().size()).c_str()));
    for (const auto& [name, value] : std::vector<std::pair<const char*, const char*>>{
             {"nthread", "1"},
             {"tree_method", "exact"},
             {"max_depth", "3"},
             {"eta", "0.1"},
             {"lambda", "1"},
             {"min_child_weight", "1"},
             {"base_score", "0"},
             {"objective", "reg:squarederror"},  // unused: gradients are ours
             {"verbosity", "0"}}) {
      ok(XGBoosterSetParam(handle_, name, value));
    }
  }
  ~Trees() { XGBoosterFree(handle_); }
  Trees(const Trees&) = delete;
  Trees& operator=(const Trees&) = delete;

  void boost(const Matrix& rows, std::vector<float>& gradient, std::vector<float>& hessian) {
    ok(XGBoosterBoostOneIter(handle_, rows.handle(), gradient.data(), hessian.data(),
                             gradient.size()));
  }

  [[nodiscard]] std::vector<double> predict(const Matrix& rows) const {
    bst_ulong count = 0;
    const float* values = nullptr;
    ok(XGBoosterPredict(handle_, rows.handle(), 0, 0, 0, &count, &values));
    return {values, values + count};
  }

  [[nodiscard]] Json to_json() const {
    bst_ulong size = 0;
    const char* text = nullptr;
    ok(XGBoosterSaveModelToBuffer(handle_, R"({"format": "json"})", &size, &text));
    return Json::parse(text, text + size);
  }

  // False: no model of XGBoost's.
  bool load(const Json& json) {
    const std::string text = json.dump();
    return XGBoosterLoadModelFromBuffer(handle_, text.data(), text.size()) == 0;
  }

 private:
  BoosterHandle handle_ = nullptr;
};

Residual Residual::fit(const std::vector<Sample>& all) {
  std::vector<Sample> samples;
  for (const Sample& sample : all) {
    if (sample.simulated > 0) samples.push_back(sample);
  }
  Residual residual;
  residual.samples_ = samples.size();
  const std::vector<Pair> pairs = pairs_of(samples);
  if (pairs.size() < 2) return residual;
  const std::vector<double> weights = weights_of(samples, pairs);
  residual.trust_ = fit_trust(samples, pairs, weights);
  std::vector<const std::vector<double>*> rows;
  for (const Sample& sample : samples) rows.push_back(&sample.features);
  const Matrix matrix(rows);
  auto trees = std::make_shared<Trees>();
  std::vector<double> scores(samples.size());
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<double> learned =
        round == 0 ? std::vector<double>(samples.size()) : trees->predict(matrix);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      scores[i] = residual.trust_ * std::log(samples[i].simulated) + learned[i];
    }
    std::vector<float> gradient(samples.size());
    std::vector<float> hessian(samples.size());
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      const double wrong = 1 / (1 + std::exp(scores[pairs[i].slow] - scores[pairs[i].fast]));
      const double w = weights[i];
      gradient[pairs[i].slow] -= static_cast<float>(w * wrong);
      gradient[pairs[i].fast] += static_cast<float>(w * wrong);
      hessian[pairs[i].slow] += static_cast<float>(w * wrong * (1 - wrong));
      hessian[pairs[i].fast] += static_cast<float>(w * wrong * (1 - wrong));
    }
    trees->boost(matrix, gradient, hessian);
  }
  residual.trees_ = std::move(trees);
  return residual;
}

Seconds Residual::correct(const std::vector<double>& features, Seconds simulated) const {
  if (!trees_) return simulated;
  const double learned = trees_->predict(Matrix({&features})).front();
  return simulated * std::exp(learned / trust_);
}

double Residual::bias(const std::vector<Sample>& samples) const {
  std::vector<double> ratios;
  for (const Sample& sample : samples) {
    if (sample.simulated <= 0) continue;
    ratios.push_back(sample.measured / correct(sample.features, Seconds(sample.simulated)).value);
  }
  return ratios.empty() ? 1 : median_of(std::move(ratios));
}

std::string Residual::to_json() const {
  Json json{{"format", "autodist residual 1"},
            {"features", feature_names()},
            {"trust", trust_},
            {"samples", samples_}};
  if (trees_) json["trees"] = trees_->to_json();
  return json.dump();
}

Residual Residual::parse(const std::string& text, const std::string& where) {
  Residual residual;
  try {
    const Json json = Json::parse(text);
    if (json.at("format") != "autodist residual 1" || json.at("features") != feature_names()) {
      fail(ErrorCode::kUsage, "{}: a ranker of another version. {}", where, kTrain);
    }
    residual.trust_ = json.at("trust").get<double>();
    residual.samples_ = json.at("samples").get<std::size_t>();
    if (!std::isfinite(residual.trust_) || residual.trust_ <= 0) {
      fail(ErrorCode::kUsage, "{}: trust {}, above 0 expected. {}", where, residual.trust_, kTrain);
    }
    if (json.contains("trees")) {
      auto trees = std::make_shared<Trees>();
      if (!trees->load(json.at("trees"))) {
        fail(ErrorCode::kUsage, "{}: its trees are no model of XGBoost's. {}", where, kTrain);
      }
      residual.trees_ = std::move(trees);
    }
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::kUsage, "{}: no ranker: {}. {}", where, json_complaint(error), kTrain);
  }
  return residual;
}

}  // namespace autodist::search
