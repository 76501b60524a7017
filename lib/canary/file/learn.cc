#include "canary/file/learn.h"

#include <algorithm>
#include <boost/asio/this_coro.hpp>
#include <memory>
#include <utility>

#include "base/error.h"
#include "canary/check/comparison.h"
#include "loop/event.h"
#include "loop/pause.h"
#include "loop/spawn.h"
#include "os/log.h"

namespace fo::canary {
namespace {

using base::Deadline;
using boost::asio::awaitable;

constexpr std::size_t kMinAnswer = 8;
constexpr std::size_t kMaxAnswer = 32;
constexpr std::size_t kMinPrompt = 48;
constexpr int kRepeats = 3;
// Number of times that a busy engine is asked a question.
constexpr int kTries = 10;
// Requests of an engine at a time in the loaded pass.
constexpr std::size_t kBeside = 8;

struct Candidate {
  PromptText text;
  std::vector<TokenId> prompt;
  std::vector<std::vector<AnswerToken>> answers;
  std::vector<base::Duration> times;
  std::string left_out;
  /// The sampler's answers; those of an engine that was busy or late are missing.
  std::vector<std::vector<TokenId>> sampled;
  bool is_sampler_refused = false;
};

struct Lesson {
  Lesson(const boost::asio::any_io_executor& executor, LearnOptions given)
      : options(std::move(given)), changed(executor) {}
  LearnOptions options;
  std::vector<Candidate> candidates;
  loop::Event changed;
  std::size_t running = 0;
};

Question question_of(const Candidate& candidate) {
  Question question{
      .prompt = candidate.prompt, .text = candidate.text.text, .max_tokens = kMaxAnswer};
  question.has_logprobs = true;
  return question;
}

// Asks a question, and repeats it while the engine is busy.
awaitable<Reply> ask_while_busy(std::shared_ptr<Lesson> lesson, std::size_t engine,
                                Question question) {
  const base::Duration timeout = lesson->options.timeout;
  const EngineAddress address = lesson->options.engines[engine];
  for (int tries = 1;; ++tries) {
    const Deadline deadline = Deadline::after(timeout);
    Reply reply = co_await ask(address, question, timeout, deadline);
    if (reply.error != AskError::kBusy || tries == kTries) co_return reply;
    co_await loop::pause_for(lesson->options.busy_pause);
  }
}

// Asks once, and adds the answer to the candidate or the reason why it is left out.
awaitable<void> ask_once(std::shared_ptr<Lesson> lesson, std::size_t index, std::size_t engine,
                         bool is_alone) {
  Candidate& candidate = lesson->candidates[index];
  if (!candidate.left_out.empty()) co_return;
  Question question = question_of(candidate);
  Reply reply = co_await ask_while_busy(lesson, engine, std::move(question));
  if (reply.error == AskError::kDown) {
    throw base::Error(base::ExitStatus::kUnavailable, reply.reason);
  }
  if (reply.error != AskError::kNone) {
    if (candidate.left_out.empty()) candidate.left_out = reply.reason;
    co_return;
  }
  if (candidate.prompt.empty()) candidate.prompt = reply.answer.prompt;
  if (reply.answer.prompt != candidate.prompt)
    candidate.left_out = "the engines read it as different tokens";
  candidate.answers.push_back(std::move(reply.answer.tokens));
  if (is_alone) candidate.times.push_back(reply.whole);
}

awaitable<void> ask_alone(std::shared_ptr<Lesson> lesson, std::size_t engine) {
  for (std::size_t i = 0; i < lesson->candidates.size(); ++i) {
    for (int k = 0; k < kRepeats; ++k) co_await ask_once(lesson, i, engine, true);
  }
}

// One of several coroutines that ask an engine at the same time.
awaitable<void> ask_beside(std::shared_ptr<Lesson> lesson, std::size_t engine,
                           std::shared_ptr<std::size_t> next) {
  const std::size_t asks = lesson->candidates.size() * kRepeats;
  while (*next < asks) {
    const std::size_t index = (*next)++ / kRepeats;
    co_await ask_once(lesson, index, engine, false);
  }
}

awaitable<void> ask_sampler(std::shared_ptr<Lesson> lesson, std::size_t engine) {
  for (Candidate& candidate : lesson->candidates) {
    if (!candidate.left_out.empty()) continue;
    Question question = question_of(candidate);
    question.has_logprobs = false;
    question.uses_sampler = true;
    const Reply reply = co_await ask_while_busy(lesson, engine, std::move(question));
    if (reply.error == AskError::kNone) {
      candidate.sampled.push_back(reply.answer.ids());
    } else if (reply.error != AskError::kBusy && reply.error != AskError::kLate) {
      candidate.is_sampler_refused = true;
    }
  }
}

// Runs the tasks at the same time until all have ended. Throws an exception of one of them.
awaitable<void> run_all(std::shared_ptr<Lesson> lesson, std::vector<awaitable<void>> tasks) {
  const auto executor = co_await boost::asio::this_coro::executor;
  const auto failure = std::make_shared<std::exception_ptr>();
  lesson->running = tasks.size();
  for (awaitable<void>& task : tasks) {
    loop::spawn(executor, std::move(task), [lesson, failure](std::exception_ptr error) {
      if (error) *failure = std::move(error);
      --lesson->running;
      lesson->changed.notify();
    });
  }
  while (lesson->running > 0) co_await lesson->changed.wait();
  if (*failure) std::rethrow_exception(*failure);
}

// Whether the sampler answers this canary as expected: it has answered at least once, always with
// the canary's tokens, and no engine refused it.
bool has_sampler(const Candidate& candidate, const Canary& canary) {
  return !candidate.is_sampler_refused && !candidate.sampled.empty() &&
         std::all_of(candidate.sampled.begin(), candidate.sampled.end(),
                     [&](const auto& sampled) { return agrees_with(canary, sampled); });
}

}  // namespace

bool agrees_with(const Canary& canary, const std::vector<TokenId>& sampled) {
  return sampled.size() >= canary.answer.size() &&
         std::equal(canary.answer.begin(), canary.answer.end(), sampled.begin(),
                    [](const AnswerToken& token, TokenId id) { return token.token == id; });
}

std::optional<Canary> merge_answers(const std::vector<std::vector<AnswerToken>>& answers,
                                    std::string& reason) {
  if (answers.empty()) {
    reason = "no answers";
    return std::nullopt;
  }
  std::size_t length = answers.front().size();
  for (const auto& answer : answers) length = std::min(length, answer.size());
  Canary canary;
  for (std::size_t i = 0; i < length; ++i) {
    const AnswerToken& first = answers.front()[i];
    AnswerToken mean{.token = first.token};
    bool is_same = true;
    bool is_safe = true;
    const auto count = static_cast<double>(answers.size());
    for (const auto& answer : answers) {
      is_same = is_same && answer[i].token == first.token;
      // Two of the best tokens with one text can't be distinguished, and then there are fewer than
      // kTopTokens.
      is_safe =
          is_safe && answer[i].top.size() >= kTopTokens && margin_of(answer[i]) >= kSafeMargin;
      mean.logprob += answer[i].logprob / count;
      for (const auto& [text, logprob] : answer[i].top) mean.top[text] += logprob / count;
    }
    if (!is_same) {
      reason = "token " + std::to_string(i) + " differs between answers";
      return std::nullopt;
    }
    if (!is_safe) break;
    // A token that was not among the best of each answer has no mean.
    std::erase_if(mean.top, [&](const auto& entry) {
      return std::any_of(answers.begin(), answers.end(),
                         [&](const auto& answer) { return !answer[i].top.contains(entry.first); });
    });
    canary.answer.push_back(std::move(mean));
  }
  if (canary.answer.size() < kMinAnswer) {
    reason = "token " + std::to_string(canary.answer.size()) + " has no safe margin";
    return std::nullopt;
  }
  canary.max_tokens = canary.answer.size();
  for (const auto& answer : answers) {
    canary.spread = std::max(canary.spread, deviation_of(canary.answer, answer).size);
  }
  return canary;
}

awaitable<Learned> learn(LearnOptions options) {
  const auto executor = co_await boost::asio::this_coro::executor;
  const auto lesson = std::make_shared<Lesson>(executor, std::move(options));
  for (PromptText& text : lesson->options.prompts) {
    lesson->candidates.emplace_back().text = std::move(text);
  }
  const std::size_t engines = lesson->options.engines.size();
  std::vector<awaitable<void>> tasks;
  for (std::size_t i = 0; i < engines; ++i) tasks.push_back(ask_alone(lesson, i));
  co_await run_all(lesson, std::move(tasks));
  std::vector<awaitable<void>> loaded;
  for (std::size_t i = 0; i < engines; ++i) {
    const auto next = std::make_shared<std::size_t>(0);
    for (std::size_t k = 0; k < kBeside; ++k) loaded.push_back(ask_beside(lesson, i, next));
  }
  co_await run_all(lesson, std::move(loaded));
  std::vector<awaitable<void>> sampled;
  for (std::size_t i = 0; i < engines; ++i) sampled.push_back(ask_sampler(lesson, i));
  co_await run_all(lesson, std::move(sampled));
  Learned learned;
  learned.file.model = lesson->options.engines.front().model;
  learned.file.card = lesson->options.card;
  learned.file.has_sampler = true;
  for (Candidate& candidate : lesson->candidates) {
    std::string reason = candidate.left_out;
    std::optional<Canary> canary;
    if (reason.empty() && candidate.prompt.size() < kMinPrompt) reason = "under 48 tokens";
    if (reason.empty()) canary = merge_answers(candidate.answers, reason);
    if (!canary) {
      learned.left_out.push_back(candidate.text.name + ": " + reason);
      continue;
    }
    canary->name = candidate.text.name;
    canary->text = std::move(candidate.text.text);
    canary->prompt = std::move(candidate.prompt);
    base::Duration sum{};
    for (const base::Duration time : candidate.times) sum += time;
    // The time for the part of the answer that checks ask for.
    canary->time = sum / static_cast<base::Duration::rep>(candidate.times.size()) *
                   static_cast<base::Duration::rep>(canary->answer.size()) /
                   static_cast<base::Duration::rep>(candidate.answers.front().size());
    learned.file.has_sampler = learned.file.has_sampler && has_sampler(candidate, *canary);
    learned.file.canaries.push_back(*std::move(canary));
  }
  learned.file.has_sampler = learned.file.has_sampler && !learned.file.canaries.empty();
  co_return learned;
}

}  // namespace fo::canary
