// The process with the GPU: vLLM's EngineCore with its worker, SGLang's scheduler. It is a child of
// the process with the HTTP server, and answers its messages on a socket.
#pragma once

#include "support/worker/launch.h"

namespace fo::stand_in {

/// Starts the engine, sends {"ready":true} on `socket` (SOCK_SEQPACKET) and answers the requests
/// there, one JSON object each:
///   {"do":"sleep"}                              {"asleep":bool}
///   {"do":"wake","tags":["weights","kv_cache"]} {"asleep":bool}; no tags: both
///   {"do":"complete","tokens":N,"prompt":HASH}  {"tokens":[…]}
/// or {"error":TEXT}. Returns 0 when the peer closes the socket. Errors that end the real program
/// end this one with status 1 and a line on standard error.
int run_engine_core(const Launch& launch, int socket);

}  // namespace fo::stand_in
