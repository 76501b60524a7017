// <nlohmann/json.hpp>, whose classes compiled/json.cc compiles once. This folder precedes that of
// the library on the include path.
#pragma once

#include_next <nlohmann/json.hpp>

extern template class nlohmann::basic_json<>;
