package sim

import (
	"flag"
	"slices"
	"strings"
	"testing"
)

// A schedule can be written down and read again, and a shorter one fails like it.
func TestSchedulesAreText(t *testing.T) {
	for seed := range uint64(200) {
		steps := generate(seed, seed%2 == 0)
		again, err := parse(format(steps))
		if err != nil {
			t.Fatal(err)
		}
		if format(again) != format(steps) {
			t.Errorf("seed %d: written and read again it is another one", seed)
		}
	}
	for _, text := range []string{"1x pod a api c=forever", "+1s", "+1s dance a"} {
		if _, err := parse(text); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

func TestShrink(t *testing.T) {
	steps := generate(7, false)
	need := []string{steps[2].String(), steps[len(steps)-3].String()}
	verb := func(s step) string { return strings.Join(append([]string{s.verb}, s.args...), " ") }
	short := shrink(steps, 1000, func(s []step) bool {
		found := 0
		for _, n := range need {
			_, n, _ = strings.Cut(n, " ")
			if slices.ContainsFunc(s, func(o step) bool { return verb(o) == n }) {
				found++
			}
		}
		return found == len(need)
	})
	if len(short) != 2 || short[0].after != 0 || short[1].after != 0 {
		t.Errorf("shrunk to:\n%s", format(short))
	}
}

var replays = flag.Int("replays", 1, "how many seeds TestReplay runs three times")

// How often a seed has the same effects in the same order is told, and that it
// sees no problem each time is checked.
func TestReplay(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped with -short")
	}
	const times = 3
	count, ordered, same, dir := uint64(*replays), 0, 0, workDir(t)
	for seed := uint64(1); seed <= count; seed++ {
		ways, sums := map[uint64]bool{}, map[uint64]bool{}
		for range times {
			r := run(t, dir, generate(seed, false), linked(seed))
			for _, p := range r.problems {
				t.Errorf("seed %d: %s", seed, p)
			}
			ways[r.hash], sums[r.sum] = true, true
		}
		if len(ways) == 1 {
			ordered++
		}
		if len(sums) == 1 {
			same++
		}
	}
	t.Logf("of %d seeds, %d times each: %d had the same effects in the same order, %d the same in the same seconds", count, times, ordered, same)
}
