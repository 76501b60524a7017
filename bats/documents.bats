#!/usr/bin/env bats
# The pages and the README, without running anything: every block of commands has a test, and every
# option and file in a sentence exists.

# shellcheck disable=SC1003,SC2016,SC2154  # backslashes and backquotes are text; others set variables
load test_helper
load examples

setup() { T=$(mktemp -d /tmp/fo.XXXXXX); }
teardown() { rm -rf "$T"; }

@test "every block of every document is run by one test" {
  local document words line i
  local -A tests=()
  # Reads the lines of all tests that name blocks.
  while read -r line; do
    eval "set -- $line"
    document=$2 words=$3
    find_block "$document" "$words" || { wrong "$line"; continue; }
    tests[$document:$BLOCK]+=x
  done < <(grep -hE '^ *(example|no_example) (README|man/)' "$FO_ROOT/bats"/*.bats | sort -k 2,2)
  for document in $(documents); do
    read_blocks "$document"
    for i in "${!BLOCKS[@]}"; do
      case ${tests[$document:$((i + 1))]:-} in
        x) continue ;;
        '') line="no test runs it" ;;
        *) line="in several tests" ;;
      esac
      wrong "$document, block $((i + 1)): $line: ${BLOCKS[i]%%$'\n'*}"
    done
    if [[ "$document" == man/* ]] && [ "${#BLOCKS[@]}" -eq 0 ]; then wrong "$document: no example"; fi
  done
  none_wrong
}

# bats test_tags=slow
@test "commands within a sentence have only options that exist" {
  need mandoc
  local document tool word help
  local -a words
  for document in $(documents); do
    while read -r tool words; do
      read -r -a words <<<"$words"
      help=$("$tool" --help)
      if [[ ${words[0]} != -* ]] && grep -qE "^  ${words[0]} " <<<"$help"; then help=$("$tool" "${words[0]}" --help); fi
      for word in "${words[@]}"; do
        if [[ $word == --* ]] && ! grep -qE -- "^ +(-.,)?$word( |\$)" <<<"$help"; then
          wrong "$document: $tool ${words[*]}: no option $word"
        fi
      done
    done < <(calls "$document")
  done
  none_wrong
}

@test "the README's links and programs exist" {
  local path
  while read -r path; do
    if [ ! -e "$FO_ROOT/$path" ]; then wrong "README.md: $path is not there"; fi
  done < <(grep -oE '(\]\(|man -l |`\./)[^)` ]+' "$FO_ROOT/README.md" | sed -E 's/^(\]\(|man -l |`\.\/)//')
  none_wrong
}

@test "blocks are displayed text exactly as it is typed" {
  FO_ROOT=$T
  cat >"$T/page.1" <<'END'
.Sh EXAMPLES
.Bd -literal -offset indent
a \e
  "b" \(dq \(aq

.Ed
.Dl c\&
.Bd -ragged
text
.Ed
END
  cat >"$T/text.md" <<'END'
Text:

    a

      b
Text
    of two lines.
- An item

```sh
c
```
END
  blocks page.1 | tr '\0' '%' >"$T/blocks"
  printf '%s\n' 'a \' "  \"b\" \" '" '' %c | diff - <(sed '$s/%$//' "$T/blocks")
  blocks text.md | tr '\0' '%' >"$T/blocks"
  printf '%s\n' a '' '  b' %c | diff - <(sed '$s/%$//' "$T/blocks")
}

@test "words identify a block if no other block has them" {
  FO_ROOT=$T
  printf '%s\n' '' '    one two' 'and' '' '    two' >"$T/text.md"
  find_block text.md one
  [ "$BLOCK" -eq 1 ]
  find_block text.md ^two
  [ "$BLOCK" -eq 2 ]
  answers 1 "text.md: 'two' is to be in one block; it is in: 1 2" find_block text.md two
  answers 1 "text.md: 'three' is to be in one block; it is in: none" find_block text.md three
}
