// A stand-in for real engines: vLLM with Dynamo's GMSWorker, SGLang with its GMS memory saver, and
// Dynamo's own vLLM worker. It accepts the real program's command line and environment, requests
// the same locks from the GMS, has the same HTTP control, and dies in the same situations,
// according to the sources of August 2026. Its output depends on every byte of the mapped weights.
//
//   stand_in_worker vllm serve MODEL …
//   stand_in_worker python3 -m dynamo.vllm …
//
// It also runs under the name of the real program: tests/engines of the build folder has links
// vllm, sglang and python3, for the front of PATH. Dynamo's GMS, python3 -m
// gpu_memory_service.cli.server, becomes gms-serve; the real python3 runs any other command.
// STAND_IN_DISCOVERY: see worker/discovery.h.
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "os/log.h"
#include "os/process/exec.h"
#include "os/process/process.h"
#include "os/process/signals.h"
#include "support/worker/engine_core.h"
#include "support/worker/front_end.h"
#include "support/worker/launch.h"

namespace {

using namespace fo;

constexpr const char* kRealPython = "/usr/bin/python3";

// The core is forked before there are threads, and started like multiprocessing does: without
// descriptors of its parent, such as that of a lock.
int run(const stand_in::Launch& launch) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    base::throw_errno(errno, "create a socket pair");
  }
  base::UniqueFd ours(ends[0]);
  base::UniqueFd theirs(ends[1]);
  os::Child core = os::fork_child([&] {
    ::dup2(theirs.get(), STDIN_FILENO);
    ::close_range(STDERR_FILENO + 1, ~0u, 0);
    return stand_in::run_engine_core(launch, STDIN_FILENO);
  });
  theirs.reset();
  os::block_signals(os::signal_set({SIGTERM, SIGINT}));
  return stand_in::run_front_end(launch, std::move(core), std::move(ours));
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  words[0] = std::filesystem::path(words[0]).filename().string();
  if (words[0] == "stand_in_worker") words.erase(words.begin());
  os::set_log(words.empty() ? "stand_in_worker" : words[0], os::LogLevel::kWarning);
  try {
    const auto launch = stand_in::parse_launch(words);
    if (launch) return run(*launch);
    if (words.size() == 3 && words[1] == "-m" && words[2] == "gpu_memory_service.cli.server") {
      os::exec_command({"gms-serve", "-q", "--tags", "weights,kv_cache"});
    }
    if (!words.empty() && words[0] == "python3") {
      words[0] = kRealPython;
      os::exec_command(words);
    }
    std::fprintf(stderr, "usage: stand_in_worker vllm serve … | python3 -m MODULE …\n");
    return base::to_int(base::ExitStatus::kUsage);
  } catch (const stand_in::Refused& refusal) {
    os::log_line(os::LogLevel::kError, refusal.what());
    return refusal.status();
  } catch (const std::exception& error) {
    os::log_line(os::LogLevel::kError, error.what());
    return 1;
  }
}
