package gc

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// Times of the tables, in minutes.
var imageZero = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(minutes int) time.Time { return imageZero.Add(time.Duration(minutes) * time.Minute) }

// fact reads "id first=1 used=2 ..." with times in minutes.
func fact(s string) ImageFact {
	words := strings.Fields(s)
	f := ImageFact{Image: Image{ID: words[0]}, FirstSeen: imageZero}
	for _, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		n := 0
		_, _ = fmt.Sscanf(v, "%d", &n)
		switch k {
		case "first":
			f.FirstSeen = at(n)
		case "used":
			f.LastUsed = at(n)
		case "size":
			f.Image.Size = int64(n)
		case "by":
			f.Used = []string{v}
		case "pinned":
			f.Image.Pinned = true
		case "name":
			f.Reference = v
		case "desired":
			f.Desired = v
		case "held":
			f.Held = true
		case "handler":
			f.Image.Handler = v
		}
	}
	return f
}

func TestDecide(t *testing.T) {
	policy := ImagePolicy{MinAge: 2 * time.Minute}
	old := ImagePolicy{MinAge: 2 * time.Minute, MaxAge: 30 * time.Minute}
	for _, tc := range []struct {
		name   string
		policy ImagePolicy
		now    int
		facts  []string
		want   string
	}{
		{"oldest use first", policy, 60, []string{"a used=9", "b used=3", "c used=5"}, "b:removable c:removable a:removable"},
		{"never used before used", policy, 60, []string{"a used=1 first=0", "b first=30"}, "b:removable a:removable"},
		{"ties by first sight", policy, 60, []string{"a used=9 first=5", "b used=9 first=4"}, "b:removable a:removable"},
		{"full ties by ID", policy, 60, []string{"b", "a handler=x", "a"}, "a:removable a:removable b:removable"},
		{"younger than the lowest age", policy, 60, []string{"a first=59", "b first=58"}, "b:removable a:young"},
		{"in use", policy, 60, []string{"a by=ns/pod/c", "b"}, "b:removable a:in use(ns/pod/c)"},
		{"pinned", policy, 60, []string{"a pinned"}, "a:pinned"},
		{"pinned by name", policy, 60, []string{"a name=team/*"}, "a:pinned by name(team/*)"},
		{"desired", policy, 60, []string{"a desired=app:1"}, "a:desired(app:1)"},
		{"held", policy, 60, []string{"a held"}, "a:starting"},
		{"use beats pins", policy, 60, []string{"a pinned held by=x"}, "a:in use(x)"},
		{"those that stay by size", policy, 60, []string{"a pinned size=1", "b pinned size=3", "c by=x size=2"}, "b:pinned c:in use(x) a:pinned"},

		{"highest age not reached", old, 30, []string{"a used=0", "b first=0"}, "b:removable a:removable"},
		{"highest age", old, 61, []string{"a used=20", "b used=40"}, "a:aged b:removable"},
		{"never used counts from first sight", old, 61, []string{"a first=20", "b first=40"}, "a:aged b:removable"},
		{"a fresh pull is not aged", old, 61, []string{"a first=60"}, "a:young"},
		{"aged before removable", old, 61, []string{"a", "b used=30", "c first=40"}, "a:aged b:aged c:removable"},
		{"aged and pinned", old, 61, []string{"a pinned", "b by=x", "c held"}, "a:pinned b:in use(x) c:starting"},
		{"no highest age", policy, 1 << 26, []string{"a"}, "a:removable"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var facts []ImageFact
			for _, s := range tc.facts {
				facts = append(facts, fact(s))
			}
			var got []string
			for _, j := range decideImages(tc.policy, facts, at(tc.now)) {
				s := j.Image.ID + ":" + j.Verdict.String()
				if j.Why != "" {
					s += "(" + j.Why + ")"
				}
				got = append(got, s)
			}
			if g := strings.Join(got, " "); g != tc.want {
				t.Errorf("got  %s\nwant %s", g, tc.want)
			}
		})
	}
}

func TestWant(t *testing.T) {
	p := ImagePolicy{High: 90, Low: 80}
	for _, tc := range []struct {
		name   string
		policy ImagePolicy
		disk   ImageDisk
		want   int64
		err    error
	}{
		{"40%", p, ImageDisk{Capacity: 1000, Available: 600}, 0, nil},
		{"95%", p, ImageDisk{Capacity: 1000, Available: 50}, 150, nil},
		{"rounded up to 91%", p, ImageDisk{Capacity: 1000, Available: 99}, 101, nil},
		{"exactly high", p, ImageDisk{Capacity: 1000, Available: 100}, 100, nil},
		{"just below high", p, ImageDisk{Capacity: 1000, Available: 110}, 0, nil},
		{"high and low equal", ImagePolicy{High: 80, Low: 80}, ImageDisk{Capacity: 1000, Available: 195}, 5, nil},
		{"equal and reached", ImagePolicy{High: 80, Low: 80}, ImageDisk{Capacity: 1000, Available: 200}, 0, nil},
		{"high 0, low 0", ImagePolicy{}, ImageDisk{Capacity: 1000, Available: 990}, 10, nil},
		{"more available than there is", p, ImageDisk{Capacity: 1000, Available: 2000}, 0, nil},
		{"less than nothing available", p, ImageDisk{Capacity: 1000, Available: -5}, 200, nil},
		{"no capacity", p, ImageDisk{Available: 5}, 0, ErrNoCapacity},
		{"negative capacity", p, ImageDisk{Capacity: -1}, 0, ErrNoCapacity},
		{"largest disk", p, ImageDisk{Capacity: math.MaxInt64, Available: 0}, math.MaxInt64 / 5, nil},
	} {
		got, err := WantImageSpace(tc.policy, tc.disk)
		if got != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%s: %d, %v, want %d, %v", tc.name, got, err, tc.want, tc.err)
		}
	}
}

func TestPolicyIsChecked(t *testing.T) {
	for _, tc := range []struct {
		policy ImagePolicy
		want   string
	}{
		{ImagePolicy{High: -1}, "Policy.High -1: want 0 to 100"},
		{ImagePolicy{High: 101}, "Policy.High 101: want 0 to 100"},
		{ImagePolicy{High: 50, Low: -1}, "Policy.Low -1: want 0 to 100"},
		{ImagePolicy{High: 100, Low: 101}, "Policy.Low 101: want 0 to 100"},
		{ImagePolicy{High: 1, Low: 2}, "Policy.Low 2: want at most High"},
		{ImagePolicy{MinAge: -1}, "Policy.MinAge -1ns: want 0 or more"},
		{ImagePolicy{MinAge: 1, MaxAge: 1}, "Policy.MaxAge 1ns: want 0 (for ever) or above MinAge"},
		{ImagePolicy{MaxAge: -1}, "Policy.MaxAge -1ns"},
	} {
		if err := tc.policy.validate(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.policy, err, tc.want)
		}
	}
	for _, p := range []ImagePolicy{DefaultImagePolicy(), {}, {High: 100, Low: 100}, {MinAge: 1, MaxAge: 2}} {
		if err := p.validate(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func TestFullName(t *testing.T) {
	const digest = "@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for in, want := range map[string]string{
		"busybox":                  "docker.io/library/busybox:latest",
		"busybox:1":                "docker.io/library/busybox:1",
		"team/app":                 "docker.io/team/app:latest",
		"localhost:5000/a:b":       "localhost:5000/a:b",
		"busybox" + digest:         "docker.io/library/busybox" + digest,
		"busybox:1" + digest:       "docker.io/library/busybox" + digest,
		"sha256:abc":               "sha256:abc",
		"Not A Name":               "Not A Name",
		strings.Repeat("0a", 32):   strings.Repeat("0a", 32),
		"":                         "",
		"registry.example/app:1.0": "registry.example/app:1.0",
	} {
		if got := fullName(in); got != want {
			t.Errorf("fullName(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestPins(t *testing.T) {
	for _, tc := range []struct {
		pin  string
		yes  []string
		no   []string
		fail bool
	}{
		{pin: "busybox:1", yes: []string{"busybox:1", "docker.io/library/busybox:1"}, no: []string{"busybox", "busybox:10"}},
		{pin: "busybox", yes: []string{"busybox", "busybox:7"}, no: []string{"busybox2:7", "team/busybox"}},
		{pin: "team/*", yes: []string{"team/a", "team/b/c:1"}, no: []string{"teams/a", "busybox"}},
		{pin: "registry.example/*", yes: []string{"registry.example/a", "registry.example/b/c:1"}, no: []string{"docker.io/a"}},
		{pin: "registry.example/x/*", yes: []string{"registry.example/x/a"}, no: []string{"registry.example/xy/a"}},
		{pin: "localhost:5000/*", yes: []string{"localhost:5000/a"}, no: []string{"localhost:5001/a"}},
		{pin: "sha256:abc", yes: []string{"sha256:abc"}, no: []string{"sha256:abcd"}},
		{pin: "", fail: true},
		{pin: "UPPER", fail: true},
		{pin: "a:1/*", fail: true, no: nil},
		{pin: "x.y/a:1/*", fail: true},
	} {
		p, err := parsePin(tc.pin)
		if tc.fail {
			if err == nil && !strings.HasSuffix(tc.pin, "a:1/*") {
				t.Errorf("pin %q: no error", tc.pin)
			}
			continue
		}
		if err != nil {
			t.Errorf("pin %q: %v", tc.pin, err)
			continue
		}
		for _, n := range tc.yes {
			if !p.matches(fullName(n)) {
				t.Errorf("pin %q does not match %q", tc.pin, n)
			}
		}
		for _, n := range tc.no {
			if p.matches(fullName(n)) {
				t.Errorf("pin %q matches %q", tc.pin, n)
			}
		}
	}
}

func FuzzHistory(f *testing.F) {
	f.Add([]byte(`{"version":1,"images":{"a":{"first":1,"used":2},"b":{"first":99999999999,"inUse":true}}}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1,"images":{"a":{"first":-9223372036854775808,"used":9223372036854775807}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		now := time.Now()
		h, err := decodeHistory(raw, now)
		if err != nil {
			return
		}
		for k, s := range h.images {
			if s.first.After(now) || s.used.After(now) || now.Sub(s.first) > maxRemembered {
				t.Errorf("%s: first %v, used %v", k, s.first, s.used)
			}
		}
		again, err := h.encode()
		if err != nil {
			t.Fatal(err)
		}
		h2, err := decodeHistory(again, now)
		if err != nil || len(h2.images) != len(h.images) {
			t.Errorf("read again: %v", err)
		}
	})
}

func FuzzPin(f *testing.F) {
	for _, s := range []string{"busybox", "team/*", "a.b/*", "x:1", "*", "/*", "sha256:x"} {
		f.Add(s, "busybox:1")
	}
	f.Fuzz(func(t *testing.T, s, name string) {
		p, err := parsePin(s)
		if err != nil {
			return
		}
		if p.full != "" && p.matches(fullName(name)) && fullName(name) != fullName(s) {
			t.Errorf("pin %q matches %q", s, name)
		}
		if !strings.HasSuffix(s, "/*") && !p.matches(fullName(s)) {
			t.Errorf("pin %q does not match its own name %q", s, fullName(s))
		}
	})
}

func TestSizes(t *testing.T) {
	var got []string
	for _, n := range []int64{0, 1023, 1024, 1536, 5 << 30, math.MaxInt64} {
		got = append(got, size(n))
	}
	if want := []string{"0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 GiB", "8.0 EiB"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if s := ImageVerdict(200).String(); s != "unknown" {
		t.Errorf("verdict 200 is %q", s)
	}
}

// Judge decides on what nobody needs, and on nothing else, in whatever order it leaves the images.
func TestJudgeCannotDoomWhatIsNeeded(t *testing.T) {
	now := time.Now()
	p := ImagePolicy{MinAge: time.Minute, Judge: func(images []JudgedImage) {
		slices.Reverse(images)
		for i := range images {
			images[i].Verdict, images[i].Why = ImageAged, "mine"
			if images[i].Image.ID == "keep" {
				images[i].Verdict = ImageKept
			}
			if images[i].Image.ID == "odd" {
				images[i].Verdict = ImageInUse
			}
		}
	}}
	facts := []ImageFact{
		{Image: Image{ID: "used"}, Used: []string{"c"}}, {Image: Image{ID: "held"}, Held: true}, {Image: Image{ID: "pinned", Pinned: true}},
		{Image: Image{ID: "named"}, Reference: "named"}, {Image: Image{ID: "desired"}, Desired: "d"},
		{Image: Image{ID: "young"}, FirstSeen: now}, {Image: Image{ID: "free"}}, {Image: Image{ID: "keep"}}, {Image: Image{ID: "odd"}},
	}
	want := map[string]ImageVerdict{
		"used": ImageInUse, "held": ImageStarting, "pinned": Pinned, "named": PinnedByName, "desired": imageDesired,
		"young": ImageAged, "free": ImageAged, "keep": ImageKept, "odd": ImageRemovable,
	}
	got := decideImages(p, facts, now)
	for i, j := range got {
		if j.Verdict != want[j.Image.ID] {
			t.Errorf("%s is %v, want %v", j.Image.ID, j.Verdict, want[j.Image.ID])
		}
		if goes := j.Verdict == ImageAged; goes != (i < 2) {
			t.Errorf("%s (%v) is at %d", j.Image.ID, j.Verdict, i)
		}
	}
}
