#include "engine/drivers/recipe.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "text/ascii.h"
#include "text/dynamo_flag.h"

namespace fo::engine {
namespace {

using base::Error;
using base::ExitStatus;

constexpr const char* kShadowMode = "DYN_VLLM_GMS_SHADOW_MODE";
constexpr const char* kScratchKv = "DYN_GMS_SCRATCH_KV_ENABLED";
constexpr const char* kDevMode = "VLLM_SERVER_DEV_MODE";

bool is_on(const std::string& value) {
  constexpr std::array<std::string_view, 5> kOff{"", "0", "false", "no", "off"};
  return !text::is_one_of(text::lower(value), kOff);
}

// The words of a command, including those of a script in it.
std::vector<std::string> words_of(const std::vector<std::string>& command) {
  constexpr std::string_view kBetween = " \t\n;&|()";
  std::vector<std::string> words;
  for (const std::string& argument : command) {
    std::size_t at = 0;
    while ((at = argument.find_first_not_of(kBetween, at)) != std::string::npos) {
      const std::size_t end = std::min(argument.find_first_of(kBetween, at), argument.size());
      words.push_back(argument.substr(at, end - at));
      at = end;
    }
  }
  return words;
}

// Whether JSON in the command has "gms_read_only": true, or a value that a shell expands.
bool reads_only(const std::vector<std::string>& command) {
  constexpr std::string_view kKey = "gms_read_only";
  return std::any_of(command.begin(), command.end(), [&](const std::string& argument) {
    const std::size_t key = argument.find(kKey);
    if (key == std::string::npos) return false;
    const std::size_t value = argument.find_first_not_of("\"'\\: ", key + kKey.size());
    return value != std::string::npos && (argument[value] == 't' || argument[value] == '$');
  });
}

class Words {
 public:
  explicit Words(const std::vector<std::string>& command) : words_(words_of(command)) {}

  [[nodiscard]] bool has(std::string_view word) const {
    return std::find(words_.begin(), words_.end(), word) != words_.end();
  }
  // Whether the command has "PROGRAM serve", where PROGRAM may have a path.
  [[nodiscard]] bool serves(std::string_view program) const {
    for (std::size_t i = 0; i + 1 < words_.size(); ++i) {
      const std::string& word = words_[i];
      if (word.substr(word.rfind('/') + 1) == program && words_[i + 1] == "serve") return true;
    }
    return false;
  }
  // The value of "--option VALUE" or "--option=VALUE"; underscores are the same as dashes.
  [[nodiscard]] std::optional<std::string> option(std::string_view name) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      const std::size_t sign = words_[i].find('=');
      std::string word = words_[i].substr(0, sign);
      if (word.starts_with("--")) std::replace(word.begin(), word.end(), '_', '-');
      if (word != name) continue;
      if (sign != std::string::npos) return words_[i].substr(sign + 1);
      return i + 1 < words_.size() ? words_[i + 1] : "";
    }
    return std::nullopt;
  }

 private:
  std::vector<std::string> words_;
};

void refuse_impossible(const Recipe& recipe, const Words& words, bool loads_from_gms) {
  if (recipe.failover && words.option("--gms-shadow-mode")) {
    throw Error(ExitStatus::kUsage,
                "--gms-shadow-mode: the engine would wait for the lock that fo-shadow holds; leave "
                "one of them out");
  }
  if (const std::string mode = recipe.variable(kShadowMode);
      recipe.failover && text::is_on_for_dynamo(mode)) {
    throw Error(ExitStatus::kConfig, std::string(kShadowMode) + "=" + mode +
                                         ": the engine would wait for the lock that fo-shadow "
                                         "holds; unset it, or do not use fo-shadow");
  }
  if (recipe.sleep_level == 2 && (recipe.has_gms || loads_from_gms)) {
    throw Error(ExitStatus::kUsage,
                "--sleep-level 2: weights of a GMS are read-only, and can't be loaded again by "
                "the engine; use 1");
  }
}

}  // namespace

std::vector<std::string> check_recipe(const Recipe& recipe) {
  const Words words(recipe.command);
  const bool is_vllm = words.serves("vllm") || words.has("vllm.entrypoints.openai.api_server");
  const bool is_sglang = words.serves("sglang") || words.has("sglang.launch_server");
  const bool is_dynamo_vllm = words.has("dynamo.vllm");
  const bool loads_from_gms = words.option("--load-format") == "gms";
  refuse_impossible(recipe, words, loads_from_gms);

  std::vector<std::string> warnings;
  const auto warn = [&warnings](std::string line) { warnings.push_back(std::move(line)); };
  const bool sleeps = recipe.failover && recipe.kind != EngineKind::kCold;
  if (is_vllm && recipe.failover && recipe.kind == EngineKind::kVllm) {
    if (!words.option("--enable-sleep-mode")) {
      warn("without --enable-sleep-mode vLLM can't be put to sleep");
    }
    if (!is_on(recipe.variable(kDevMode))) {
      warn("without " + std::string(kDevMode) + "=1 vLLM has no endpoint /sleep");
    }
  }
  if (!loads_from_gms) {
    if (recipe.has_gms && (is_vllm || is_sglang || is_dynamo_vllm)) {
      warn("without --load-format gms the engine has weights of its own on the device");
    }
    return warnings;
  }
  if (is_vllm && !words.option("--worker-cls")) {
    warn(
        "without --worker-cls gpu_memory_service.integrations.vllm.worker.GMSWorker vLLM does not "
        "know --load-format gms");
  }
  const std::string id = recipe.variable("ENGINE_ID");
  if (sleeps && !id.empty() && id != "0" && !reads_only(recipe.command)) {
    warn("without --model-loader-extra-config '{\"gms_read_only\": true}' engine " + id +
         " may acquire the writer's lock of one device while engine 0 holds that of another");
  }
  if (sleeps && (is_vllm || is_dynamo_vllm) && !is_on(recipe.variable(kScratchKv))) {
    warn("without " + std::string(kScratchKv) +
         "=1 the engine waits without limit for the kv_cache lock while the other one is awake");
  }
  if (is_sglang) {
    warn(
        "SGLang by itself does not know --load-format gms: run dynamo.sglang, or a launcher that "
        "brings that in");
  }
  if (sleeps && is_sglang) {
    warn(
        "SGLang waits without limit for the kv_cache lock while the other engine is awake: use "
        "--engine cold");
  }
  for (const std::string& socket : recipe.missing_kv_sockets) {
    warn("no socket " + base::quoted(socket) +
         ": the engine needs a GMS with the tag kv_cache for each device (gms-serve --tags "
         "weights,kv_cache)");
  }
  return warnings;
}

}  // namespace fo::engine
