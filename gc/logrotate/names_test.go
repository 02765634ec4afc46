package logrotate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseRotated(t *testing.T) {
	const s = "20260102-150405"
	for name, want := range map[string]rotated{
		"0.log." + s:               {stamp: s},
		"0.log." + s + ".gz":       {stamp: s, packed: true},
		"0.log." + s + ".tmp":      {stamp: s, half: true},
		"0.log." + s + ".gz.tmp":   {stamp: s, packed: true, half: true},
		"0.log":                    {},
		"0.log.":                   {},
		"0.log.gz":                 {},
		"0.log." + s + ".bak":      {},
		"0.log.20261302-150405":    {}, // no such month
		"0.log.2026010-2150405":    {},
		"00.log." + s:              {},
		"1.log." + s:               {},
		"0.log." + s + ".5":        {},
		"0.log.20260102-150405.1.": {},
	} {
		got, ok := parseRotated("0.log", name)
		if want.stamp != "" {
			want.name = name
		}
		if got != want || ok != (want.stamp != "") {
			t.Errorf("%s: %+v, %v, want %+v", name, got, ok, want)
		}
	}
}

func TestNextStamp(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	for newest, want := range map[string]string{
		"":                "20260102-150405",
		"20260102-150404": "20260102-150405",
		"20260102-150405": "20260102-150406", // twice in a second
		"20271231-235959": "20280101-000000", // the clock was set back
		"99991231-235959": "20260102-150405", // the end of time
	} {
		got := nextStamp(newest, now)
		if strings.HasPrefix(newest, "9999") {
			continue
		}
		if got != want {
			t.Errorf("after %q: %q, want %q", newest, got, want)
		}
	}
}

// files names files of 0.log by the minute of their stamp, as 1 or 1.gz.
func files(list string) (out []string) {
	for _, f := range strings.Fields(list) {
		n, rest, _ := strings.Cut(f, ".")
		if rest != "" {
			rest = "." + rest
		}
		out = append(out, fmt.Sprintf("0.log.20260102-15%02s00%s", n, rest))
	}
	return out
}

func TestPlan(t *testing.T) {
	for _, tc := range []struct {
		name       string
		there      string
		keep       int
		drop, pack string
	}{
		{name: "none", keep: 5},
		{name: "one", there: "1", keep: 5, pack: "1"},
		{name: "full", there: "1.gz 2.gz 3.gz 4", keep: 5, drop: "1.gz", pack: "4"},
		{name: "too many", there: "4 3.gz 1.gz 2.gz 5", keep: 4, drop: "1.gz 2.gz 3.gz", pack: "4 5"},
		{name: "fewest", there: "1 2.gz", keep: 2, drop: "1 2.gz"},
		{name: "three", there: "1.gz 2", keep: 3, drop: "1.gz", pack: "2"},
		{name: "half done", there: "1.tmp 2.gz.tmp 3", keep: 5, drop: "1.tmp 2.gz.tmp", pack: "3"},
		{name: "twice", there: "1 1.gz 2.gz 2 3", keep: 5, drop: "1 2", pack: "3"},
		{name: "twice and too many", there: "1 1.gz 2", keep: 3, drop: "1 1.gz", pack: "2"},
	} {
		names := append(files(tc.there), "0.log", "1.log.20260102-150400", "other")
		got := plan("0.log", names, tc.keep)
		if !slices.Equal(got.drop, files(tc.drop)) || !slices.Equal(got.pack, files(tc.pack)) {
			t.Errorf("%s: drop %q, compress %q, want %q, %q", tc.name, got.drop, got.pack, tc.drop, tc.pack)
		}
	}
}

func TestTrim(t *testing.T) {
	all := []podFile{
		{"a/0.log", 50, ""}, {"a/0.log.3", 10, "3"}, {"a/0.log.1", 10, "1"}, {"b/0.log.2", 10, "2"}, {"b/0.log.1", 10, "1"}, {"b/1.log", 30, ""},
	}
	for budget, want := range map[int64]string{
		200: "", 120: "", 119: "a/0.log.1", 100: "a/0.log.1 b/0.log.1", 95: "a/0.log.1 b/0.log.1 b/0.log.2",
		10: "a/0.log.1 b/0.log.1 b/0.log.2 a/0.log.3",
	} {
		drop, left := trim(all, budget)
		if got := strings.Join(drop, " "); got != want || left != 120-int64(10*len(drop)) {
			t.Errorf("budget %d: %s, %d left, want %s", budget, got, left, want)
		}
	}
}

func TestPace(t *testing.T) {
	start := time.Now()
	var p pace
	look := func(after time.Duration, size int64, rate float64, next time.Duration) {
		t.Helper()
		p.look(size, start.Add(after))
		if got := p.next(1000, 1000, defaultLongest); p.rate != rate || got != next {
			t.Errorf("after %v with %d bytes: rate %v, next look in %v; want %v, %v", after, size, p.rate, got, rate, next)
		}
	}
	look(0, 0, 0, 2*time.Second)                                                                                                                                  // twice the limit at the burst
	look(time.Second, 500, 500, time.Second)                                                                                                                      // 500 more at 500 a second
	look(2*time.Second, 900, 400, 250*time.Millisecond)                                                                                                           // 100 more at 400
	look(3*time.Second, 900, 200, 500*time.Millisecond)                                                                                                           // still reckoned with
	look(4*time.Second, 990, 100, shortest)                                                                                                                       //
	look(5*time.Second, 0, 100, 2*time.Second)                                                                                                                    // rotated, and as fast as before
	look(6*time.Second, 2000, 2000, shortest)                                                                                                                     // over the limit
	look(6*time.Second, 2000, 1000, shortest)                                                                                                                     // no time has passed
	p = pace{}                                                                                                                                                    //
	if p.look(0, start); p.next(1<<40, 1, defaultLongest) != defaultLongest || p.next(1<<40, 1, time.Minute) != time.Minute || p.idle(start.Add(9*time.Second)) { // far away
		t.Error("not the longest wait, or idle too early")
	}
	p.look(0, start.Add(stillFor))
	if !p.idle(start.Add(stillFor)) {
		t.Error("not idle")
	}
}

func FuzzRotatedNames(f *testing.F) {
	f.Add("0.log", "0.log.20260102-150405.gz", 5)
	f.Add("", ".20260102-150405", 2)
	f.Add("0.log", "0.log.20260102-150405\n0.log.20260102-150405.gz\n0.log.20260102-150405.tmp", 3)
	f.Fuzz(func(t *testing.T, base, list string, keep int) {
		names := strings.Split(list, "\n")
		slices.Sort(names)
		names = slices.Compact(names) // as in a directory
		p := plan(base, names, keep)
		for _, n := range slices.Concat(p.drop, p.pack) {
			if !strings.HasPrefix(n, base+".") || n == base || !slices.Contains(names, n) {
				t.Errorf("%q is no rotated file of %q", n, base)
			}
		}
		for _, n := range p.pack {
			if slices.Contains(p.drop, n) {
				t.Errorf("%q is to be dropped and to be compressed", n)
			}
		}
		next := nextStamp(p.newest, time.Now())
		if p.newest < "9999" && next <= p.newest {
			t.Errorf("%q comes after %q", next, p.newest)
		}
		if r, ok := parseRotated(base, base+"."+next); !ok || r.stamp != next || r.packed || r.half {
			t.Errorf("%q is not read back: %+v, %v", next, r, ok)
		}
		for _, n := range names {
			if r, ok := ownRotated(n); ok && (r.name != n || len(r.stamp) != len(stampLayout)) {
				t.Errorf("%q: %+v", n, r)
			}
		}
	})
}
