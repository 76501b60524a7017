#include "canary/file/texts.h"

#include <array>
#include <cstddef>
#include <string_view>

namespace fo::canary {
namespace {

constexpr std::size_t kTexts = 64;
// Each text is this many passages; every eighth one is long.
constexpr std::size_t kPassages = 5;
constexpr std::size_t kLongEvery = 8;
constexpr std::size_t kLongPassages = 64;

// Their number is prime and greater than the strides below, so that no two texts have the same
// passages in the same order.
constexpr std::array<std::string_view, 17> kPassageTexts{
    "The ferry leaves the north pier at seven, turns past the lighthouse, and reaches the island "
    "before the bakery opens.",
    "Counting by sevens: 7, 14, 21, 28, 35, 42, 49, 56, 63, 70, 77, 84, 91, 98, 105, 112.",
    "def area(width, height):\n    return width * height\n\nprint(area(3, 4))  # 12\n",
    "Der Schlosser misst die Welle zweimal, schreibt beide Werte auf und nimmt den kleineren.",
    "La meunière pèse la farine, note le poids dans un cahier bleu et ferme la porte à midi.",
    "El cartero sube la cuesta despacio, deja tres cartas en la escuela y vuelve por el río.",
    "for (int i = 0; i < 10; ++i) { total += values[i]; }\nstd::cout << total << '\\n';\n",
    "Monday follows Sunday, Tuesday follows Monday, Wednesday follows Tuesday, and Thursday "
    "follows "
    "Wednesday.",
    "Copper conducts heat better than iron, iron better than glass, and glass better than wood.",
    "{\"city\": \"Oslo\", \"rooms\": 4, \"heated\": true, \"floors\": [1, 2, 3]}",
    "Il fabbro accende il forno all'alba, batte il ferro caldo e lo lascia raffreddare nell'acqua.",
    "SELECT name, price FROM tools WHERE price < 20 ORDER BY price DESC LIMIT 5;",
    "Садовник поливает яблони утром, собирает груши днём и закрывает калитку вечером.",
    "庭の池には赤い魚が三匹いて、朝になると橋の下に集まります。",
    "If a train covers 90 kilometres in one hour, it covers 45 in half an hour and 180 in two.",
    "2 + 3 = 5, 3 + 5 = 8, 5 + 8 = 13, 8 + 13 = 21, 13 + 21 = 34, 21 + 34 = 55.",
    "O pescador conserta a rede, conta os anzóis e espera que o vento mude para o sul.",
};

}  // namespace

std::vector<PromptText> builtin_prompts() {
  std::vector<PromptText> prompts;
  for (std::size_t i = 0; i < kTexts; ++i) {
    const bool is_long = i % kLongEvery == kLongEvery - 1;
    const std::size_t stride = 1 + i / kPassageTexts.size();
    PromptText prompt{.name = "builtin-" + std::to_string(i + 1), .text = {}};
    for (std::size_t k = 0; k < (is_long ? kLongPassages : kPassages); ++k) {
      prompt.text += std::to_string(k + 1) + ". ";
      prompt.text += kPassageTexts[(i + k * stride) % kPassageTexts.size()];
      prompt.text += '\n';
    }
    prompt.text += std::to_string((is_long ? kLongPassages : kPassages) + 1) + ". ";
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace fo::canary
