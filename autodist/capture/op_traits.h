// What capture knows of an op before it runs: what its schema says, and what libtorch's schemas do
// not say, by tables. Private to capture.

#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "autodist/capture/training_step.h"

namespace autodist::capture {

struct ArgumentTraits {
  bool written = false;    // by its schema, or in truth (native_batch_norm's running_mean)
  bool viewed = false;     // a result shares its storage
  bool generator = false;  // takes a generator of random numbers
};

struct OpTraits {
  std::vector<ArgumentTraits> arguments;
  bool random = false;
  bool makes_no_tensor = false;
  // Makes a tensor whose contents nobody has written yet (aten::empty and its like).
  bool leaves_uninitialised = false;
  // Writes its target without reading what was there (aten::copy_, aten::zero_, random fills).
  bool overwrites_target = false;
};

inline bool is_mask(const at::Tensor& index) {
  return index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
}

// Calls visit(tensor) for every defined tensor of an argument.
template <typename Visit>
void for_each_tensor(const c10::IValue& value, Visit visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& each : value.toTensorVector()) {
      if (each.defined()) visit(each);
    }
  } else if (value.isOptionalTensorList()) {
    for (const c10::optional<at::Tensor>& each : value.toOptionalTensorVector()) {
      if (each && each->defined()) visit(*each);
    }
  }
}

// Whether the host learns what one Boolean of a tensor is: `if mask.all():`.
bool reads_boolean(const c10::OperatorHandle& op, const c10::IValue* arguments);
// Whether it learns what one integer is: `int(lengths.max())`.
bool reads_integer(const c10::OperatorHandle& op, const c10::IValue* arguments);

// A sentence: what a user may write in the place of an op ("aten::index") whose results' sizes
// depend on data.
const char* with_fixed_sizes(const std::string& op_name);

// A sentence: what to write in the place of a number that the host reads.
inline constexpr char kWithTheTensor[] =
    "Compute with the tensor as it is, without item(), or return it from the step.";

// Schemas are asked once per op, not once per call: their types are compared as text.
class OpTraitsTable {
 public:
  const OpTraits& of(const c10::OperatorHandle& op);

 private:
  std::unordered_map<const c10::FunctionSchema*, OpTraits> known_;
};

}  // namespace autodist::capture
