// For tests: whether two declarations of a C function describe the same call.
#pragma once

#include <type_traits>

namespace fo::cuda {

/// Whether a value of one type is passed like the other: same kind and size, and for pointers the
/// same constness and size of the target.
template <typename One, typename Other>
constexpr bool same_passing() {
  if constexpr (std::is_pointer_v<One> && std::is_pointer_v<Other>) {
    using Target = std::remove_pointer_t<One>;
    using OtherTarget = std::remove_pointer_t<Other>;
    constexpr bool kSized = requires { sizeof(Target); }
    &&!std::is_void_v<Target>;
    constexpr bool kOtherSized = requires { sizeof(OtherTarget); }
    &&!std::is_void_v<OtherTarget>;
    if constexpr (std::is_const_v<Target> != std::is_const_v<OtherTarget>) {
      return false;
    } else if constexpr (kSized && kOtherSized) {
      return sizeof(Target) == sizeof(OtherTarget);
    } else {
      return kSized == kOtherSized && std::is_void_v<Target> == std::is_void_v<OtherTarget>;
    }
  } else {
    constexpr bool kInteger = std::is_integral_v<One> || std::is_enum_v<One>;
    constexpr bool kOtherInteger = std::is_integral_v<Other> || std::is_enum_v<Other>;
    return kInteger && kOtherInteger && sizeof(One) == sizeof(Other);
  }
}

/// ::value for two pointers to functions.
template <typename One, typename Other>
struct SameCall : std::false_type {};
template <typename Result, typename... Parameters, typename OtherResult,
          typename... OtherParameters>
requires(sizeof...(Parameters) ==
         sizeof...(OtherParameters)) struct SameCall<Result (*)(Parameters...),
                                                     OtherResult (*)(OtherParameters...)>
    : std::bool_constant<same_passing<Result, OtherResult>() &&
                         (same_passing<Parameters, OtherParameters>() && ...)> {
};

}  // namespace fo::cuda
