// The members of nlohmann::json, compiled once: with the library's headers alone, a file that uses
// it takes 10 % longer to compile.
#include <nlohmann/json.hpp>

template class nlohmann::basic_json<>;
