#include "engine/pair_process.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "http/client.h"
#include "lock/lock_status.h"
#include "os/file/file.h"
#include "os/process/sibling.h"

namespace fo::test {
namespace {

using base::Deadline;
using base::Error;
using base::ExitStatus;
using nlohmann::json;
using std::chrono::milliseconds;

constexpr const char* kMark = "FO_TEST_MARK";
const std::string kBin = FO_BUILD_DIR "/bin/";

// What wait_until() waits for; read by a signal handler.
char waits_for[256] = "nothing";

// In containers, /dev/shm has 64 MiB by default.
std::string roomy_folder() {
  struct statvfs shm {};
  const bool roomy =
      ::statvfs("/dev/shm", &shm) == 0 && shm.f_bavail * shm.f_frsize >= 8 * kPairVram;
  return roomy ? "/dev/shm" : "/tmp";
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::vector<pid_t> all_pids() {
  std::vector<pid_t> pids;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", gone)) {
    const auto pid = base::parse_uint(entry.path().filename().native());
    if (pid) pids.push_back(static_cast<pid_t>(*pid));
  }
  return pids;
}

// nullopt if there is no answer, or not in JSON.
std::optional<json> ask(const std::string& method, const std::string& url, base::Duration limit,
                        const std::string& body = {}) {
  try {
    http::FetchOptions options;
    options.body = body;
    const http::Response answer = http::fetch(method, url, Deadline::after(limit), options);
    json object = json::parse(answer.body, nullptr, false);
    if (answer.status != 200 || !object.is_object()) return std::nullopt;
    return object;
  } catch (const Error&) {
    return std::nullopt;
  }
}

json ask_driver(int device) {
  const auto answer = os::run_captured(
      {FO_BUILD_DIR "/libexec/fo/fo-gpu", "free", "--device", std::to_string(device)},
      Deadline::after(kPairTimeout));
  if (!answer || answer->status != 0) {
    throw Error(ExitStatus::kUnavailable,
                "ask the driver: " + (answer ? answer->err : "no answer"));
  }
  return json::parse(answer->out);
}

}  // namespace

void wait_until(const std::string& what, const std::function<bool()>& is_true,
                base::Duration timeout) {
  std::strncpy(waits_for, what.c_str(), sizeof waits_for - 1);
  const Deadline deadline = Deadline::after(timeout);
  while (!is_true()) {
    if (deadline.expired()) throw Error(ExitStatus::kTryAgain, "waited in vain for " + what);
    std::this_thread::sleep_for(milliseconds(2));
  }
}

void limit_run(std::chrono::seconds time) {
  std::signal(SIGALRM, [](int) {
    constexpr char kWords[] = "no end in sight; waits for ";
    [[maybe_unused]] ssize_t put = ::write(STDERR_FILENO, kWords, sizeof kWords - 1);
    put = ::write(STDERR_FILENO, waits_for, ::strnlen(waits_for, sizeof waits_for));
    put = ::write(STDERR_FILENO, "\n", 1);
    ::_exit(1);
  });
  ::alarm(static_cast<unsigned>(time.count()));
}

Pair::Pair(const PairOptions& options)
    : options_(options),
      sim_(roomy_folder()),
      null_(os::open_file("/dev/null", O_RDWR)),
      events_(os::open_file(file("events"), O_WRONLY | O_CREAT | O_APPEND)) {
  if (options_.vllm) options_.ranks = 1;
  lock_ = {options_.lockd ? lock::LockUri::Kind::kLockd : lock::LockUri::Kind::kFlock,
           file("lock")};
  for (const char* name :
       {"ENGINE_ID", "FAILOVER_LOCK_PATH", "GMS_SOCKET_DIR", "GMS_SIM_FAULTS", "GMS_SIM_LATENCY",
        "GMS_REMAP_TIMEOUT_MS", "DYN_SYSTEM_PORT", "DYN_SYSTEM_STARTING_HEALTH_STATUS",
        "CUDA_VISIBLE_DEVICES", "DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS", "NOTIFY_SOCKET"}) {
    ::unsetenv(name);
  }
  ::setenv("GMS_DRIVER", "sim", 1);
  ::setenv("GMS_SIM_DIR", sim_.path().c_str(), 1);
  ::setenv("GMS_SIM_DEVICES", std::to_string(devices()).c_str(), 1);
  ::setenv("GMS_SIM_VRAM", std::to_string(kPairVram).c_str(), 1);
  ::setenv("GMS_SIM_CONTEXT_SIZE", "2MiB", 1);
  std::filesystem::create_directory(file("gms"));
  for (const int engine : {0, 1}) ports_.try_emplace(engine);
  run_to_end({kBin + "fo-refengine", "make-model", model(), "--layers", "2", "--hidden", "64",
              "--heads", "4", "--kv-heads", "2", "--intermediate", "128", "--seed", "7", "-q"});
  free_before_ = free_memory();
  if (options_.lockd) start_lockd();
}

Pair::~Pair() {
  for (auto& [engine, shadow] : shadows_) {
    if (shadow) shadow->signal(SIGKILL);
  }
  for (auto& [device, gms] : gms_) {
    if (gms) gms->signal(SIGKILL);
  }
  if (lockd_) lockd_->signal(SIGKILL);
  for (const pid_t pid : processes()) ::kill(pid, SIGKILL);
}

std::unique_ptr<os::Child> Pair::run(const std::vector<std::string>& argv,
                                     const Settings& environment, const std::string& log) const {
  const base::UniqueFd err = os::open_file(file(log), O_WRONLY | O_CREAT | O_APPEND);
  os::SpawnOptions options;
  options.parent_death_signal = SIGKILL;
  options.stdin_fd = null_.get();
  options.stdout_fd = null_.get();
  options.stderr_fd = err.get();
  options.keep_fds = {events_.get()};
  options.environment.assign(environment.begin(), environment.end());
  options.environment.emplace_back(kMark, folder_.path());
  return std::make_unique<os::Child>(os::spawn(argv, options));
}

void Pair::run_to_end(const std::vector<std::string>& argv) const {
  const auto status = run(argv)->wait(Deadline::after(kPairTimeout));
  if (status != 0) {
    throw Error(ExitStatus::kSoftware, base::quoted(argv.front()) + " ended with status " +
                                           std::to_string(status.value_or(-1)) + ": " +
                                           read_text(file("log")));
  }
}

void Pair::start_lockd() {
  lockd_ = run({kBin + "gms-lockd", "-q", "--socket", lock_.path, "--reconnect-window", "2s"});
  run_to_end({kBin + "gms-probe", "lock", "--lock", "unix:" + lock_.path, "--wait", "20s"});
}

void Pair::start_gms(int device) {
  const std::string number = std::to_string(device);
  std::vector<std::string> argv{kBin + "gms-serve", "-q"};
  std::string devices = number;
  const std::string tags = options_.vllm ? "weights,kv_cache" : "weights";
  if (options_.gms_per_device) {
    // As in a bundle, whose folder cannot be used by a second one.
    const std::string name = "gms_" + ask_driver(device).at("uuid").get<std::string>();
    argv.insert(argv.end(),
                {"--socket-path", file("gms/" + name + "_weights.sock"), "--device", number});
    std::error_code there;
    std::filesystem::create_symlink(name + "_weights.sock", gms_socket(device), there);
  } else {
    for (int i = 1; i < options_.ranks; ++i) devices += "," + std::to_string(i);
    argv.insert(argv.end(), {"--socket-dir", file("gms"), "--devices", devices, "--tags", tags});
  }
  const std::vector<std::string> probe{kBin + "gms-probe",
                                       "sockets",
                                       "-q",
                                       "--socket-dir",
                                       file("gms"),
                                       "--devices",
                                       devices,
                                       "--tags",
                                       tags,
                                       "--wait",
                                       "0s"};
  gms_.erase(device);
  wait_until("gms-serve to be ready", [&] {
    // The folder stays locked until the last server of a killed bundle has ended.
    auto& gms = gms_[device];
    const auto status = gms ? gms->wait(Deadline::after(base::Duration::zero())) : std::nullopt;
    if (status && status != base::to_int(ExitStatus::kCannotCreate)) {
      throw Error(ExitStatus::kSoftware, "gms-serve ended with status " + std::to_string(*status));
    }
    if (!gms || status) gms = run(argv);
    const auto answer = os::run_captured(probe, Deadline::after(kPairTimeout));
    return answer && answer->status == 0;
  });
}

void Pair::load() {
  for (int device = 0; device < devices(); ++device) {
    run_to_end({kBin + "gms-load", model(), "--role", "rw_or_ro", "--socket-dir", file("gms"),
                "--device", std::to_string(device), "--timeout", "20s", "-q"});
  }
}

std::vector<std::string> Pair::engine_command(int engine) const {
  if (options_.vllm) {
    std::vector<std::string> argv{FO_BUILD_DIR "/tests/engines/vllm",
                                  "serve",
                                  model(),
                                  "--load-format",
                                  "gms",
                                  "--worker-cls",
                                  "gpu_memory_service.integrations.vllm.worker.GMSWorker",
                                  "--enable-sleep-mode",
                                  "--kv-cache-memory-bytes",
                                  std::to_string(kPairKv),
                                  "--host",
                                  "127.0.0.1",
                                  "--port",
                                  std::to_string(port(engine))};
    if (engine > 0) {
      argv.insert(argv.end(), {"--model-loader-extra-config", R"({"gms_read_only": true})"});
    }
    return argv;
  }
  return {kBin + "fo-refengine",
          "serve",
          "-q",
          "--model",
          model(),
          "--socket-dir",
          file("gms"),
          "--ranks",
          std::to_string(options_.ranks),
          "--kv-bytes",
          std::to_string(kPairKv),
          "--port",
          std::to_string(port(engine)),
          "--start-asleep",
          "--kv-retry",
          "200ms",
          "--remap-timeout",
          "1s"};
}

void Pair::start(int engine, const Start& how) {
  std::string devices = "0";
  for (int i = 1; i < options_.ranks; ++i) devices += "," + std::to_string(i);
  std::vector<std::string> argv{kBin + "fo-shadow",
                                "--lock",
                                (options_.lockd ? "unix:" : "flock:") + lock_.path,
                                "--socket-dir",
                                file("gms"),
                                "--devices",
                                devices,
                                "--port",
                                "-1",
                                "--engine-url",
                                "http://127.0.0.1:" + std::to_string(port(engine)),
                                "--publish",
                                "127.0.0.1:" + std::to_string(published_.number()),
                                "--status-fd",
                                std::to_string(events_.get()),
                                "--gpu-free",
                                std::to_string(kPairKv)};
  // Short limits, so that the tests are fast.
  Settings limits{{"--start-timeout", "20s"}, {"--wake-timeout", "4s"},
                  {"--remap-timeout", "1s"},  {"--prove-timeout", "1s"},
                  {"--gms-grace", "4s"},      {"--grace", "300ms"},
                  {"--drain", "2s"},          {"--health-interval", "100ms"},
                  {"--health-timeout", "1s"}, {"--prove-interval", "200ms"},
                  {"--failures", "2"}};
  for (const auto& [name, value] : options_.shadow_options) limits[name] = value;
  for (const auto& [name, value] : how.shadow_options) limits[name] = value;
  for (const auto& [name, value] : limits) argv.insert(argv.end(), {name, value});
  argv.emplace_back("--");
  const std::vector<std::string> command =
      how.command.empty() ? engine_command(engine) : how.command;
  argv.insert(argv.end(), command.begin(), command.end());
  Settings environment = how.environment;
  environment["ENGINE_ID"] = std::to_string(engine);
  if (options_.vllm) {
    environment.insert({{"GMS_SOCKET_DIR", file("gms")},
                        {"VLLM_SERVER_DEV_MODE", "1"},
                        {"DYN_GMS_SCRATCH_KV_ENABLED", "1"},
                        {"STAND_IN_DISCOVERY", file("discovery")}});
  }
  shadows_[engine] = run(argv, environment, "engine-" + std::to_string(engine));
}

std::unique_ptr<os::Child> Pair::fill(base::ByteCount size) const {
  const base::ByteCount before = free_memory(0);
  auto filler =
      run({FO_BUILD_DIR "/tests/dying_engine", "pieces=1", "device=" + std::to_string(size)});
  wait_until("the device to be filled", [&] { return free_memory(0) + size <= before; });
  return filler;
}

std::optional<int> Pair::ended(int engine) {
  const auto shadow = shadows_.find(engine);
  if (shadow == shadows_.end()) return std::nullopt;
  const auto status = shadow->second->wait(Deadline::after(base::Duration::zero()));
  if (status) shadows_.erase(shadow);
  return status;
}

int Pair::await_end(int engine, base::Duration timeout) {
  std::optional<int> status;
  wait_until(
      "the end of engine " + std::to_string(engine),
      [&] { return (status = ended(engine)).has_value(); }, timeout);
  return *status;
}

std::string Pair::gms_socket(int device) const {
  return file("gms") + "/gms_" + std::to_string(device) + "_weights.sock";
}

std::string Pair::status_socket(int engine) const {
  return lock_.path + ".engine-" + std::to_string(engine) + ".sock";
}

std::optional<EngineStatus> Pair::status(int engine, base::Duration limit) const {
  const auto answer = ask("GET", "unix:" + status_socket(engine) + ":/status", limit);
  if (!answer) return std::nullopt;
  EngineStatus status;
  status.state = answer->value("state", "");
  if (const json& pid = (*answer)["engine_pid"]; pid.is_number()) status.engine = pid;
  if (const json& number = (*answer)["generation"]; number.is_number()) status.generation = number;
  return status;
}

std::string Pair::state(int engine) const {
  const auto told = status(engine);
  return told ? told->state : "dead";
}

std::optional<bool> Pair::is_awake(int engine, base::Duration limit) const {
  const auto answer =
      ask("GET", "http://127.0.0.1:" + std::to_string(port(engine)) + "/is_sleeping", limit);
  if (!answer) return std::nullopt;
  return !answer->value("is_sleeping", true);
}

bool Pair::two_served() const {
  return read_text(file("discovery")).find("two_serve") != std::string::npos;
}

std::optional<int> Pair::active() const {
  for (const int engine : {0, 1}) {
    if (state(engine) == "active") return engine;
  }
  return std::nullopt;
}

std::string Pair::tokens(base::Duration limit) const {
  const auto answer =
      ask("POST", "http://127.0.0.1:" + std::to_string(published_.number()) + "/v1/completions",
          limit, R"({"prompt":"Once upon a time","max_tokens":8,"ignore_eos":true})");
  if (!answer || !answer->contains("choices")) return {};
  return (*answer)["choices"].at(0).value("token_ids", json::array()).dump();
}

std::optional<std::string> Pair::holder() const { return lock::find_owner(lock_); }

base::ByteCount Pair::free_memory(int device) const {
  return ask_driver(device).at("free").get<base::ByteCount>();
}

std::vector<base::ByteCount> Pair::free_memory() const {
  std::vector<base::ByteCount> free;
  for (int device = 0; device < devices(); ++device) free.push_back(free_memory(device));
  return free;
}

std::vector<pid_t> Pair::processes() const {
  const std::string mark = std::string(kMark) + "=" + folder_.path();
  std::vector<pid_t> found;
  for (const pid_t pid : all_pids()) {
    // The file is empty once the process has ended.
    const std::string environment = read_text("/proc/" + std::to_string(pid) + "/environ");
    if (environment.find(mark + '\0') != std::string::npos) found.push_back(pid);
  }
  return found;
}

std::vector<std::string> Pair::orphans() const {
  std::vector<std::string> found;
  for (const pid_t pid : processes()) {
    std::optional<pid_t> above = pid;
    while (above && *above > 1 && *above != ::getpid()) above = os::process_parent(*above);
    // A process that has ended meanwhile has no visible parent.
    if (above == ::getpid() || !above) continue;
    std::string command = read_text("/proc/" + std::to_string(pid) + "/cmdline");
    std::replace(command.begin(), command.end(), '\0', ' ');
    found.push_back(std::to_string(pid) + " " + command.substr(0, 80));
  }
  return found;
}

std::vector<pid_t> Pair::children_of(pid_t pid) {
  std::vector<pid_t> children;
  for (const pid_t other : all_pids()) {
    if (os::process_parent(other) == pid) children.push_back(other);
  }
  return children;
}

std::optional<pid_t> Pair::weights_server() const {
  // A line of /proc/net/unix ends with inode and path.
  const std::string path = std::filesystem::canonical(gms_socket(0));
  std::ifstream sockets("/proc/net/unix");
  std::string line;
  while (std::getline(sockets, line) && !line.ends_with(" " + path)) continue;
  const std::string left = line.substr(0, line.size() - std::min(line.size(), path.size() + 1));
  const std::string socket = "socket:[" + left.substr(left.rfind(' ') + 1) + "]";
  for (const pid_t pid : children_of(gms().pid())) {
    std::error_code gone;
    for (const auto& entry :
         std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", gone)) {
      if (std::filesystem::read_symlink(entry.path(), gone) == socket) return pid;
    }
  }
  return std::nullopt;
}

std::vector<std::uint64_t> Pair::generations() const {
  std::vector<std::uint64_t> numbers;
  std::ifstream events(file("events"));
  for (std::string line; std::getline(events, line);) {
    const json event = json::parse(line, nullptr, false);
    if (event.is_object() && event.value("event", "") == "granted") {
      numbers.push_back(event.value("generation", std::uint64_t{0}));
    }
  }
  return numbers;
}

void Pair::cut_a_client() const {
  const std::string url =
      "http://127.0.0.1:" + std::to_string(published_.number()) + "/v1/completions";
  http::FetchOptions options;
  options.body = R"({"prompt":"Once","max_tokens":2000,"ignore_eos":true,"stream":true})";
  options.on_data = [](std::string_view) { return false; };
  http::fetch("POST", url, Deadline::after(kPairTimeout), options);
}

std::string Pair::logs() const {
  constexpr std::size_t kMax = 2000;
  std::string text;
  for (const char* name : {"log", "engine-0", "engine-1"}) {
    const std::string log = read_text(file(name));
    text += std::string("--- ") + name + "\n" + log.substr(log.size() - std::min(kMax, log.size()));
  }
  return text;
}

std::unique_ptr<os::Child> Pair::switch_over() const {
  return run({kBin + "fo-shadow", "switchover", "-q", "--timeout", "20s", "--lock",
              (options_.lockd ? "unix:" : "flock:") + lock_.path});
}

void Pair::end(std::unique_ptr<os::Child>& part, const std::string& name,
               std::vector<std::string>& wrong) const {
  if (!part) return;
  part->signal(SIGTERM);
  const auto status = part->wait(Deadline::after(kPairTimeout));
  if (status != 0) {
    wrong.push_back(name + (status ? " ended with status " + std::to_string(*status)
                                   : std::string(" does not end")));
  }
  if (status) part.reset();
}

std::vector<std::string> Pair::finish() {
  std::vector<std::string> wrong;
  // Both at once, so that the standby does not take over for long.
  for (auto& [engine, shadow] : shadows_) {
    if (shadow) shadow->signal(SIGTERM);
  }
  for (auto& [engine, shadow] : shadows_) end(shadow, "fo-shadow", wrong);
  if (const auto left = holder()) wrong.push_back("the lock is held by " + base::quoted(*left));
  for (auto& [device, gms] : gms_) end(gms, "gms-serve", wrong);
  end(lockd_, "gms-lockd", wrong);
  const auto check = [&](const std::string& what, const std::function<bool()>& is_true) {
    try {
      wait_until(what, is_true, std::chrono::seconds(5));
    } catch (const Error& error) {
      wrong.emplace_back(error.what());
    }
  };
  check("the last process to end", [&] { return processes().empty(); });
  check("the memory to come back", [&] { return free_memory() == free_before_; });
  return wrong;
}

}  // namespace fo::test
