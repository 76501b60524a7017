// The registries of a fleet: the time from SIGKILL of a registered process until `fo-reg watch`
// prints it, against a loop on inotify(7) that waits for one lock; a registry of many records; a
// change in etcd, against `etcdctl watch`; and what `fo-reg run` costs. Usage: registry [--json
// FILE] [--quick] [RUNS]
#include <fcntl.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "etcd/server.h"
#include "fleet/record/instance.h"
#include "fleet/registry/dir_registry.h"
#include "fleet/registry/uri.h"
#include "loop/run.h"
#include "os/file/pipe.h"
#include "os/process/process.h"
#include "report.h"
#include "support/forked.h"
#include "support/temp_dir.h"
#include "usage.h"

namespace {

using namespace fo;
using base::Deadline;
using bench::cpu_seconds;
using bench::resident_mib;

const std::string kFoReg = FO_BUILD_DIR "/bin/fo-reg";
const std::string kStarting = "\"starting\"";
const std::string kReady = "\"ready\"";
const fleet::EndpointId kEndpoint{"llama", "worker", "generate"};

Deadline soon() { return Deadline::after(std::chrono::seconds(30)); }

fleet::Record new_record() {
  fleet::Instance instance;
  instance.id = fleet::make_instance_id();
  instance.url = "http://127.0.0.1:8001";
  instance.model = "llama";
  instance.life = fleet::Life::kReady;
  return {fleet::instance_key(kEndpoint, instance.id), fleet::encode(instance)};
}

// A program whose output is read by lines.
class Lines {
 public:
  explicit Lines(const std::vector<std::string>& argv) : child_(start(argv)) {
    pipe_.writer.reset();
  }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;
  ~Lines() {
    child_.signal(SIGKILL);
    static_cast<void>(child_.wait(Deadline::never()));
  }

  /// Reads until a line contains `part`, or `other` if it is not empty. Returns that line.
  std::string await(const std::string& part, const std::string& other = {}) {
    for (;;) {
      const std::size_t end = text_.find('\n');
      if (end != std::string::npos) {
        std::string line = text_.substr(0, end);
        text_.erase(0, end + 1);
        const bool is_found = line.find(part) != std::string::npos ||
                              (!other.empty() && line.find(other) != std::string::npos);
        if (is_found) return line;
        continue;
      }
      char bytes[65536];
      const ssize_t count = ::read(pipe_.reader.get(), bytes, sizeof bytes);
      if (count <= 0) throw base::Error(base::ExitStatus::kSoftware, "read lines: the end");
      text_.append(bytes, static_cast<std::size_t>(count));
    }
  }
  [[nodiscard]] pid_t pid() const { return child_.pid(); }

 private:
  os::Child start(const std::vector<std::string>& argv) {
    os::SpawnOptions options;
    options.parent_death_signal = SIGKILL;
    options.stdout_fd = pipe_.writer.get();
    return os::spawn(argv, options);
  }

  os::Pipe pipe_;
  os::Child child_;
  std::string text_;
};

double ours_after_kill(const std::string& folder, Lines& watch) {
  const fleet::Record record = new_record();
  test::Forked holder([&](int ready) {
    const auto kept =
        loop::run_to_end(fleet::make_dir_registry(folder)->register_record(record, soon()));
    test::say(ready, 1);
    return test::pause_for_ever();
  });
  watch.await("\"event\":\"put\"");
  return bench::seconds_of([&] {
    holder.kill();
    watch.await("\"event\":\"gone\"");
  });
}

bool is_locked(const std::string& path) {
  const base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct flock range {};
  range.l_type = F_WRLCK;
  return ::fcntl(fd.get(), F_OFD_GETLK, &range) == 0 && range.l_type != F_UNLCK;
}

// The least that a watcher has to do: it knows the one file, and queries its lock all the time.
double inotify_after_kill(const std::string& path) {
  test::Forked holder([&](int ready) {
    const base::UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    struct flock range {};
    range.l_type = F_WRLCK;
    ::fcntl(fd.get(), F_OFD_SETLK, &range);
    test::say(ready, 1);
    return test::pause_for_ever();
  });
  holder.read();
  const base::UniqueFd inotify(::inotify_init1(IN_CLOEXEC));
  ::inotify_add_watch(inotify.get(), path.c_str(), IN_CLOSE_WRITE);
  return bench::seconds_of([&] {
    holder.kill();
    char event[4096];
    if (::read(inotify.get(), event, sizeof event) <= 0) return;
    while (is_locked(path)) {
    }
    std::puts("gone");
    std::fflush(stdout);
  });
}

void many_records(std::size_t count, std::size_t runs, bench::Report& report) {
  const test::TempDir folder;
  const auto registry = fleet::make_dir_registry(folder.path("many"));
  if (os::raise_fd_limit() < count + 100) {
    return report.skip("a registry of many records", "too few open files are allowed");
  }
  std::vector<std::unique_ptr<fleet::RegisteredRecord>> kept;
  for (std::size_t i = 0; i < count; ++i) {
    kept.push_back(loop::run_to_end(registry->register_record(new_record(), soon())));
  }
  std::vector<double> listing;
  for (std::size_t i = 0; i < runs; ++i) {
    listing.push_back(bench::seconds_of([&] {
                        if (loop::run_to_end(registry->list("", soon())).size() != count)
                          std::abort();
                      }) *
                      1e3);
  }
  Lines watch({kFoReg, "watch", "--registry", "dir:" + folder.path("many")});
  watch.await("listed");
  std::vector<double> cpu;
  for (std::size_t i = 0; i < runs; ++i) {
    const double before = cpu_seconds(watch.pid());
    loop::run_to_end(kept.front()->edit(
        [&](const std::string& text) { return fleet::with_label(text, "n", std::to_string(i)); },
        soon()));
    watch.await("\"put\"");
    cpu.push_back((cpu_seconds(watch.pid()) - before) * 1e3);
  }
  const std::string records = std::to_string(count) + " records";
  report.row("list " + records, "ms", {"fo-reg", listing}, {}, bench::value_at_most(100));
  report.row("CPU of a watch of " + records + " for one change", "ms", {"fo-reg", cpu}, {},
             bench::value_at_most(1));
  std::printf("%s: listed in %.1f ms, a change costs a watch %.3f ms of CPU\n", records.c_str(),
              bench::median(listing), bench::median(cpu));
}

void with_etcd(std::size_t runs, bench::Report& report) {
  if (!test::has_etcd()) return report.skip("a change in etcd", "etcd is not installed");
  const test::TempDir folder;
  const test::Etcd etcd(folder);
  const std::string uri = "etcd:" + etcd.url() + "/fo";
  const auto registry = fleet::make_registry(uri);
  Lines ours({kFoReg, "watch", "--registry", uri, "cards/"});
  ours.await("listed");
  Lines peer(etcd.etcdctl({"watch", "--prefix", "fo/cards/"}));
  std::size_t number = 0;
  // Until both watches are there.
  const auto put = [&] {
    const std::string text = "{\"n\":" + std::to_string(++number) + "}";
    loop::run_to_end(registry->put({"cards/x", text}, soon()));
    return text;
  };
  const auto change = [&](Lines& watch, Lines& other) {
    std::string text;
    const double seconds = bench::seconds_of([&] {
      text = put();
      watch.await(text);
    });
    other.await(text);
    return seconds;
  };
  while (etcd.watchers() < 2) ::usleep(1000);
  std::vector<bench::Contender> watches{{"fo-reg watch", [&] { return change(ours, peer); }},
                                        {"etcdctl watch", [&] { return change(peer, ours); }}};
  bench::take_turns(watches, runs);
  report.table("A record is put into etcd -> a watch prints it", "ms", 1e3, watches,
               {{"fo-reg watch", "etcdctl watch", bench::cost_at_most(1.2)}});
}

void supervisor(std::size_t runs, bench::Report& report) {
  const test::TempDir folder;
  const std::string uri = "dir:" + folder.path("registry");
  Lines watch({kFoReg, "watch", "--registry", uri});
  watch.await("listed");
  std::vector<double> start;
  std::vector<double> memory;
  for (std::size_t i = 0; i < runs; ++i) {
    std::unique_ptr<Lines> run;
    std::string line;
    start.push_back(bench::seconds_of([&] {
                      run = std::make_unique<Lines>(std::vector<std::string>{
                          kFoReg, "run", "--registry", uri, "--endpoint", to_string(kEndpoint),
                          "--url", "http://127.0.0.1:8001", "--", "sleep", "1000"});
                      // A watch that is slow sees only the last one.
                      line = watch.await(kStarting, kReady);
                    }) *
                    1e3);
    if (line.find(kReady) == std::string::npos) watch.await(kReady);
    memory.push_back(resident_mib(run->pid()));
  }
  report.row("start of fo-reg run -> its record is in a folder", "ms", {"fo-reg", start}, {},
             bench::value_at_most(10));
  report.row("memory of fo-reg run", "MiB", {"fo-reg", memory}, {}, bench::value_at_most(6));
  std::printf("fo-reg run: record after %.1f ms, %.1f MiB\n", bench::median(start),
              bench::median(memory));
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run(
      "registry", argc, argv, [](const bench::Arguments& arguments, bench::Report& report) {
        const std::size_t runs = bench::parse_runs(arguments, arguments.quick ? 1 : 5);
        {
          const test::TempDir folder;
          const std::string path = folder.path("registry");
          Lines watch({kFoReg, "watch", "--registry", "dir:" + path});
          watch.await("listed");
          std::vector<bench::Contender> watches{
              {"fo-reg watch", [&] { return ours_after_kill(path, watch); }},
              {"inotify loop", [&] { return inotify_after_kill(folder.path("lock")); }}};
          bench::take_turns(watches, runs);
          report.table("SIGKILL of a registered process -> a watch prints it", "us", 1e6, watches,
                       {{"fo-reg watch", "inotify loop", bench::cost_at_most(2)}});
        }
        many_records(arguments.quick ? 100 : 10'000, runs, report);
        with_etcd(runs, report);
        supervisor(runs, report);
      });
}
