// The file of --keys, which names the clients' keys by their SHA-256:
//
//     [KEY]                          # printf %s "$KEY" | sha256sum
//     tier = "standard"              # premium, standard (the default) or best_effort
//     requests_per_minute = 60       # no limit where a line is missing
//     tokens_per_minute = 100000
//     requests_at_a_time = 8
//     models = ["llama"]             # all where it is missing
#pragma once

#include <string>

#include "route/request/admission.h"

namespace fo::fo_route {

/// Reads at most 16 MiB. Throws what os::read_file throws, and kConfig for invalid content: "read
/// keys 'file': line 3: reason", in which no key is shown.
route::KeyRules read_keys(const std::string& path);

}  // namespace fo::fo_route
