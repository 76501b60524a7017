// Reads a multipart form (RFC 7578). Parsers differ in what they make of an unusual form, and the
// router must read the same fields as an engine, so a form that two of them may read differently is
// refused. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fo::route {

struct FormField {
  /// In lower case, since engines may ignore the case of names.
  std::string name;
  /// A part of the body.
  std::string_view value;
};

/// The fields of a form, in order; none for an empty body. `type` is its Content-Type. Throws
/// Error(kBadData) with the reason if the form is invalid or unusual.
std::vector<FormField> read_form(std::string_view type, std::string_view body);

}  // namespace fo::route
