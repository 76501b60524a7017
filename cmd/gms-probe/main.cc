// gms-probe: answers one probe with an exit status.
#include "base/exit_status.h"
#include "base/text.h"
#include "cli/app.h"
#include "cli/screen/output.h"
#include "options.h"
#include "os/log.h"

namespace {

using namespace fo;
using base::ExitStatus;
using gms_probe::Options;

// These return the line that is printed for the answer yes.
std::string to_text(const gms::SocketsAnswer& answer) {
  return base::counted(answer.sockets, "socket") + (answer.sockets == 1 ? " answers" : " answer");
}

std::string to_text(const http::HttpAnswer& answer) {
  return "status " + std::to_string(answer.status.value_or(0));
}

std::string to_text(const engine::EngineProbeAnswer& answer) {
  return answer.state ? std::string(state_name(*answer.state)) : "";
}

std::string to_text(const lock::LockAnswer& answer) {
  if (!answer.holder) return "free";
  return answer.holder->empty() ? "held" : "held by " + *answer.holder;
}

std::string to_text(const gms::RemapAnswer& answer) {
  return "could wake: layout " + answer.memory_layout_hash.value();
}

std::string to_text(const device::GpuAnswer& answer) {
  return base::format_size(answer.free) + " free";
}

// The answer no is not an error, so -q silences its reason.
template <typename Answer>
ExitStatus tell(const Answer& answer, const cli::CommonOptions& common) {
  if (common.json) {
    cli::print_line(to_json(answer));
  } else if (answer.yes) {
    cli::print_line(to_text(answer));
  }
  if (!answer.yes) os::log(os::LogLevel::kWarning, "{}", answer.reason);
  return answer.yes ? ExitStatus::kOk : ExitStatus::kNo;
}

ExitStatus probe(Options& options) {
  gms_probe::settle(options);
  const cli::CommonOptions& common = options.common;
  switch (options.probe) {
    case Options::Probe::kSockets:
      return tell(gms::probe_sockets(options.sockets), common);
    case Options::Probe::kHttp:
      return tell(http::probe_http(options.http), common);
    case Options::Probe::kEngine:
      return tell(engine::probe_engine(options.engine), common);
    case Options::Probe::kLock:
      return tell(lock::probe_lock(options.lock), common);
    case Options::Probe::kRemap:
      return tell(gms::probe_remap(options.remap), common);
    case Options::Probe::kGpu:
      break;
  }
  return tell(device::probe_gpu(options.gpu), common);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const cli::Tool tool{.name = "gms-probe",
                       .summary = "Answer one probe with an exit status.",
                       .version = FO_VERSION};
  return cli::run(argc, argv, tool, options, gms_probe::declare, [&] { return probe(options); });
}
