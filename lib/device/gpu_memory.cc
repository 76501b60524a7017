#include "device/gpu_memory.h"

#include <nlohmann/json.hpp>

#include "json/object.h"

namespace fo::device {
namespace {

using base::Error;
using base::ExitStatus;

constexpr base::Duration kStartTime = std::chrono::seconds(30);
constexpr base::Duration kAnswerTime = std::chrono::seconds(5);
constexpr base::ByteCount kMaxAnswerBytes = 4 * base::kKiB;

std::optional<os::Captured> run_helper(const std::vector<std::string>& argv,
                                       const base::Deadline& deadline, int interrupt_fd) {
  try {
    return os::run_captured(argv, deadline, interrupt_fd);
  } catch (const Error& error) {
    throw GpuMemory::unavailable(error.what());
  }
}

}  // namespace

std::string GpuMemory::what() const {
  return "query the free memory of device " + std::to_string(device_.value());
}

std::vector<std::string> GpuMemory::question(base::Duration time) const {
  std::vector<std::string> argv{os::find_sibling("fo-gpu"),
                                "free",
                                "--device",
                                std::to_string(device_.value()),
                                "--until-free",
                                std::to_string(wanted_),
                                "--timeout",
                                base::format_duration(time)};
  if (!uuid_.empty()) {
    argv.emplace_back("--uuid");
    argv.push_back(uuid_.value());
  }
  return argv;
}

std::optional<bool> GpuMemory::ask(base::Duration time, const base::Deadline& deadline,
                                   int interrupt_fd) {
  const auto answer = run_helper(question(time), deadline, interrupt_fd);
  return answer ? std::optional(read_answer(*answer)) : std::nullopt;
}

bool GpuMemory::read_answer(const os::Captured& answer) {
  const bool enough = answer.status == base::to_int(ExitStatus::kOk);
  if (!enough && answer.status != base::to_int(ExitStatus::kTryAgain)) {
    throw os::helper_error(answer, "fo-gpu", what() + ": ");
  }
  try {
    const nlohmann::json object = fo::json::parse_object(answer.out, kMaxAnswerBytes);
    free_ = object.at("free").get<base::ByteCount>();
    uuid_ = base::GpuUuid(object.at("uuid").get<std::string>());
  } catch (const std::exception&) {
    throw Error(ExitStatus::kSoftware, what() + ": fo-gpu gave no answer");
  }
  return enough;
}

base::Deadline GpuMemory::answer_by(base::Duration time) const {
  return base::Deadline::after(time + (is_known() ? kAnswerTime : kStartTime));
}

Error GpuMemory::no_answer() const { return unavailable(what() + ": no answer in time"); }

// 126 and 127 are reserved for the command that runs under the lock, and for the engine.
Error GpuMemory::unavailable(const std::string& what) { return {ExitStatus::kUnavailable, what}; }

std::string GpuMemory::describe() const {
  return "device " + std::to_string(device_.value()) + " has " + base::format_size(free_) +
         " free, " + base::format_size(wanted_) + " needed";
}

}  // namespace fo::device
