package gc_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/gc"
	"github.com/nodewright/nodewright/internal/testrun"
)

var watermarks = &gc.ImagePolicy{High: 90, Low: 80, MinAge: 2 * time.Minute}

// settled returns a manager that has seen the store's images so long ago that
// none is young.
func settled(t *testing.T, cfg gc.ImageConfig) *gc.ImageCollector {
	t.Helper()
	m := newManager(t, cfg)
	if _, err := m.Explain(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Minute)
	return m
}

func TestCollect(t *testing.T) {
	boom := errors.New("boom")
	for _, tc := range []struct {
		name   string
		store  func(s *fakeStore) // of 1000 bytes with the images a to e of 50
		config func(c *gc.ImageConfig)
		gone   string
		want   error
		events string
	}{
		{name: "room enough", store: func(s *fakeStore) { s.other = 150 }},
		{name: "just below high", store: func(s *fakeStore) { s.other = 649 - 10 }},
		{name: "until low", store: func(s *fakeStore) { s.other = 700 }, gone: " a b c"},
		{name: "exactly reached", store: func(s *fakeStore) { s.other = 650; s.images = s.images[:5] }, gone: " a b"},
		{name: "not enough", store: func(s *fakeStore) { s.other = 740; s.use("a", "b", "c", "d") }, gone: " e",
			want: gc.ErrNotEnough, events: "Warning FreeDiskSpaceFailed"},
		{name: "all in use", store: func(s *fakeStore) { s.other = 740; s.use("a", "b", "c", "d", "e") },
			want: gc.ErrNotEnough, events: "Warning FreeDiskSpaceFailed"},
		{name: "all pinned", store: func(s *fakeStore) {
			s.other = 740
			for i := range s.images {
				s.images[i].Pinned = true
			}
		}, want: gc.ErrNotEnough, events: "Warning FreeDiskSpaceFailed"},
		{name: "pinned by name", store: func(s *fakeStore) { s.other = 700 }, config: func(c *gc.ImageConfig) { c.Pins = []string{"b", "library/a:latest"} }, gone: " c d e"},
		{name: "desired", store: func(s *fakeStore) { s.other = 700 }, config: func(c *gc.ImageConfig) {
			c.Desired = func() []string { return []string{"a", "docker.io/library/b"} }
		}, gone: " c d e"},
		{name: "one cannot be removed", store: func(s *fakeStore) { s.other = 700; s.fail["sha256:a"] = boom }, gone: " b c d", want: boom},
		{name: "no list", store: func(s *fakeStore) { s.other = 700; s.fail["Images"] = boom }, want: boom},
		{name: "no uses", store: func(s *fakeStore) { s.other = 700; s.fail["Uses"] = boom }, want: boom},
		{name: "no disk", store: func(s *fakeStore) { s.other = 700; s.fail["Disk"] = boom }, want: boom},
		{name: "no capacity", store: func(s *fakeStore) { s.capacity = 0 }, want: gc.ErrNoCapacity, events: "Warning InvalidDiskCapacity"},
		{name: "images without an ID", store: func(s *fakeStore) {
			s.other = 700
			s.images = append(s.images, gc.Image{}, gc.Image{})
		}, gone: " a b c", events: "Warning InvalidImageID"},
		{name: "aged, and room enough", store: func(s *fakeStore) { s.use("a", "b", "c") }, config: func(c *gc.ImageConfig) {
			c.Policy = &gc.ImagePolicy{High: 90, Low: 80, MaxAge: 9 * time.Minute}
		}, gone: " d e"},
		{name: "aged ones that stay do not keep space from being made", store: func(s *fakeStore) {
			s.other = 700
			s.fail["sha256:a"] = boom
			s.add(50, "young")
		}, config: func(c *gc.ImageConfig) {
			c.Policy = &gc.ImagePolicy{High: 90, Low: 79, MaxAge: 9 * time.Minute}
		}, gone: " b c d e", want: boom},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &fakeStore{capacity: 1000, fail: map[string]error{}}
				s.add(50, "a", "b", "c", "d", "e")
				var events fakeEvents
				cfg := gc.ImageConfig{Store: s, Policy: watermarks, Events: &events}
				if tc.config != nil {
					tc.config(&cfg)
				}
				m := settled(t, cfg)
				tc.store(s)
				rep, err := m.Collect(t.Context())
				if s.gone() != tc.gone {
					t.Errorf("removed%s, want%s; %s", s.gone(), tc.gone, rep.Summary())
				}
				if (err == nil) != (tc.want == nil) || !errors.Is(err, tc.want) {
					t.Errorf("error %v, want %v", err, tc.want)
				}
				if got := strings.Join(events.all(), ", "); got != tc.events {
					t.Errorf("events %q, want %q", got, tc.events)
				}
			})
		})
	}
}

// An image that is new stays, even when all are to go, and is new again when
// it was away.
func TestMinAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{capacity: 1000, other: 900}
		s.add(50, "a")
		m := newManager(t, gc.ImageConfig{Store: s, Policy: watermarks})
		reclaim := func(want string) {
			t.Helper()
			if _, err := m.Reclaim(t.Context(), math.MaxInt64); err != nil || s.gone() != want {
				t.Errorf("removed%s, %v, want%s", s.gone(), err, want)
			}
		}
		reclaim("")
		time.Sleep(time.Minute)
		reclaim("")
		time.Sleep(time.Minute)
		reclaim(" a")
		s.add(50, "a")
		reclaim(" a")
		time.Sleep(2 * time.Minute)
		reclaim(" a a")
	})
}

func TestLifeOfARecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{capacity: 1000}
		s.add(10, "a")
		m := newManager(t, gc.ImageConfig{Store: s})
		begin := time.Now()
		look := func(first, used time.Duration, v gc.ImageVerdict) {
			t.Helper()
			rep, err := m.Explain(t.Context())
			if err != nil || len(rep.Images) != 1 {
				t.Fatalf("%+v, %v", rep, err)
			}
			o := rep.Images[0]
			if o.FirstSeen.Sub(begin) != first || used >= 0 && o.LastUsed.Sub(begin) != used || used < 0 && !o.LastUsed.IsZero() || o.Verdict != v {
				t.Errorf("first seen after %v, used after %v, %v; want %v, %v, %v",
					o.FirstSeen.Sub(begin), o.LastUsed.Sub(begin), o.Verdict, first, used, v)
			}
		}
		look(0, -1, gc.ImageYoung)
		time.Sleep(time.Hour)
		look(0, -1, gc.ImageRemovable)
		s.use("a") // a container, dead or alive
		look(0, time.Hour, gc.ImageInUse)
		time.Sleep(time.Hour)
		s.use()
		look(0, 2*time.Hour, gc.ImageRemovable)
		time.Sleep(time.Hour)
		look(0, 2*time.Hour, gc.ImageRemovable)
		s.images[0].Pinned = true
		look(0, 2*time.Hour, gc.Pinned)
		s.images[0].Pinned = false
		look(0, 2*time.Hour, gc.ImageRemovable)
		h := m.Hold() // a container that came and went between two looks
		l, err := h.Name(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if intact, err := l.Got(t.Context(), "sha256:a"); err != nil || !intact {
			t.Fatal(intact, err)
		}
		look(0, 2*time.Hour, gc.ImageStarting)
		h.Release()
		look(0, 3*time.Hour, gc.ImageRemovable)
	})
}

// A pod looks for several images at a time. What one look-up hears of a removal
// is no news to the others, which may have found what has gone since.
func TestLookupsOfOneHoldAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{capacity: 1000}
		s.add(100, "a", "b")
		m := settled(t, gc.ImageConfig{Store: s})
		h := m.Hold()
		defer h.Release()
		name := func(image string) *gc.ImageLookup {
			l, err := h.Name(t.Context(), image)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		got := func(l *gc.ImageLookup, id string, want bool) {
			t.Helper()
			if intact, err := l.Got(t.Context(), id); err != nil || intact != want {
				t.Errorf("%s is intact: %v, %v, want %v", id, intact, err, want)
			}
		}
		first := name("a:other") // which turns out to be sha256:a, listed as a:latest
		if _, err := m.Reclaim(t.Context(), math.MaxInt64); err != nil || s.gone() != " a b" {
			t.Fatal(s.gone(), err)
		}
		second := name("b")
		got(second, "sha256:b", true) // it was looked up after the removal
		got(first, "sha256:a", false)
		got(first, "sha256:a", true) // looked up anew
	})
}

// What comes too late is not held, and holds nobody up.
func TestNameAfterRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{capacity: 1000}
		s.add(100, "a")
		m := settled(t, gc.ImageConfig{Store: s})
		h := m.Hold()
		h.Release()
		l, err := h.Name(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if intact, err := l.Got(t.Context(), "sha256:a"); !intact || err != nil {
			t.Error(intact, err)
		}
		if _, err := m.Reclaim(t.Context(), math.MaxInt64); err != nil || s.gone() != " a" {
			t.Errorf("removed%s, %v", s.gone(), err)
		}
	})
}

// Layers that images share are not freed with each of them, and unpacked
// layers take more than was pulled: it is measured what there is.
func TestFreesAsMuchAsIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{capacity: 1000, shared: map[string]int64{}}
		s.add(100, "a", "b", "c", "d", "e", "f")
		for _, i := range s.images {
			s.shared[i.ID] = 80 // so each has 20 of its own
		}
		s.other = 750 // 950 used: 150 are wanted, of 6*20+80
		m := settled(t, gc.ImageConfig{Store: s, Policy: watermarks})
		if rep, err := m.Collect(t.Context()); err != nil || rep.Freed < 150 || s.gone() != " a b c d e f" {
			t.Errorf("removed%s, freed %d, %v", s.gone(), rep.Freed, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{capacity: 1000, shared: map[string]int64{}}
		s.add(10, "a", "b", "c")
		for _, i := range s.images {
			s.shared[i.ID] = -60 // unpacked they take 70
		}
		s.other = 690
		m := settled(t, gc.ImageConfig{Store: s, Policy: watermarks})
		if freed, err := m.Reclaim(t.Context(), 70); err != nil || freed != 70 || s.gone() != " a" {
			t.Errorf("removed%s, freed %d, %v, want a and 70", s.gone(), freed, err)
		}
	})
}

// Who wants so much space gets that, of the oldest first, however old the others
// are: what is above the highest age goes with the next pass.
func TestReclaimTakesNoMoreThanWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{capacity: 1000}
		s.add(50, "a", "b", "c")
		reg := prometheus.NewRegistry()
		m := settled(t, gc.ImageConfig{Store: s, Metrics: reg, Policy: &gc.ImagePolicy{High: 90, Low: 80, MaxAge: time.Minute}})
		if freed, err := m.Reclaim(t.Context(), 50); err != nil || freed != 50 || s.gone() != " a" {
			t.Errorf("removed%s, freed %d, %v, want a and 50", s.gone(), freed, err)
		}
		if rep, err := m.Collect(t.Context()); err != nil || s.gone() != " a b c" {
			t.Errorf("removed%s, %v; %s", s.gone(), err, rep.Summary())
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, x := range f.GetMetric() {
				if f.GetName() != "kubelet_image_garbage_collected_total" {
					continue
				}
				if why, n := x.GetLabel()[0].GetValue(), x.GetCounter().GetValue(); n != map[string]float64{"space": 1, "age": 2}[why] {
					t.Errorf("%v removed for %s", n, why)
				}
			}
		}
	})
}

// A runtime may keep one image for several handlers (KEP-4216): each is an
// image of its own, with its users and its age. Where one side does not tell of
// handlers, whoever uses an image may use any of that ID.
func TestImagesOfRuntimeHandlers(t *testing.T) {
	for _, tc := range []struct {
		name   string
		images []string // handlers
		use    string
		left   []string
	}{
		{"both tell", []string{"kata", "gvisor"}, "kata", []string{"kata", "young"}},
		{"the container does not tell", []string{"kata", "gvisor"}, "", []string{"kata", "gvisor", "young"}},
		{"the image does not tell", []string{"", "gvisor"}, "kata", []string{"", "young"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &fakeStore{capacity: 1000}
				add := func(handler string) {
					s.add(50, "a")
					s.images[len(s.images)-1].Handler = handler
				}
				for _, h := range tc.images {
					add(h)
				}
				m := settled(t, gc.ImageConfig{Store: s})
				s.uses = []gc.ImageUse{{Image: "sha256:a", Handler: tc.use, By: "default/pod/c"}}
				add("young")
				if _, err := m.Reclaim(t.Context(), math.MaxInt64); err != nil {
					t.Fatal(err)
				}
				var left []string
				for _, i := range s.images {
					left = append(left, i.Handler)
				}
				if !slices.Equal(left, tc.left) {
					t.Errorf("left are those of %q, want %q", left, tc.left)
				}
			})
		})
	}
}

// Without the disk's figures the images' sizes are counted.
func TestReclaimWithoutFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{capacity: 1000, fail: map[string]error{}}
		s.add(50, "a", "b", "c")
		m := settled(t, gc.ImageConfig{Store: s})
		s.fail["Disk"] = errors.New("boom")
		if freed, err := m.Reclaim(t.Context(), 60); err != nil || freed != 100 || s.gone() != " a b" {
			t.Errorf("removed%s, freed %d, %v, want a, b and 100", s.gone(), freed, err)
		}
	})
}

func TestHistoryOutlastsARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := &checkpointtest.Disk{}
		s := &fakeStore{capacity: 1000}
		s.add(50, "used", "never")
		s.use("used")
		cfg := gc.ImageConfig{Store: s, Memory: memory, Policy: &gc.ImagePolicy{High: 90, Low: 80, MinAge: time.Minute, MaxAge: time.Hour}}
		settled(t, cfg)
		writes := len(memory.Value("images"))
		s.use()
		time.Sleep(51 * time.Minute)

		m := newManager(t, cfg) // of an agent that is started anew
		rep, err := m.Collect(t.Context())
		if err != nil || s.gone() != " never" {
			t.Errorf("removed%s, %v; %s; stored %d bytes; want never: it is older than an hour", s.gone(), err, rep.Summary(), writes)
		}
		time.Sleep(59 * time.Minute)
		if _, err := m.Collect(t.Context()); err != nil || s.gone() != " never" {
			t.Errorf("removed%s, %v, want no more: it was in use at the last look", s.gone(), err)
		}

		memory.Put("images", "{")
		s.add(50, "x")
		if _, err := newManager(t, cfg).Collect(t.Context()); err != nil || s.gone() != " never" {
			t.Errorf("removed%s, %v with a history that cannot be read", s.gone(), err)
		}
	})
}

func TestNothingIsWrittenWhileNothingChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := &checkpointtest.Disk{}
		s := &fakeStore{capacity: 1000}
		s.add(50, "used", "never")
		s.use("used")
		m := settled(t, gc.ImageConfig{Store: s, Memory: memory})
		memory.Calls()
		for range 5 {
			time.Sleep(5 * time.Minute)
			_, _ = m.Explain(t.Context())
		}
		if calls := memory.Calls(); len(calls) > 0 {
			t.Errorf("written again: %q", calls)
		}
	})
}

func TestPruneGetsWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{capacity: 1000}
		s.add(50, "a", "b", "c", "d")
		s.use("d")
		var present []string
		var since time.Time
		m := settled(t, gc.ImageConfig{Store: s, Policy: watermarks, Prune: func(_ context.Context, p []string, at time.Time) error {
			present, since = p, at
			return nil
		}})
		if !since.IsZero() {
			t.Error("pruned although nothing was removed")
		}
		s.other = 700
		if _, err := m.Collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		slices.Sort(present)
		if want := []string{"sha256:c", "sha256:d"}; !slices.Equal(present, want) || !since.Equal(time.Now()) {
			t.Errorf("present %q since %v, want %q: those not looked at and those in use too", present, since, want)
		}
		s.images = s.images[1:]
		since = time.Time{}
		if _, err := m.Explain(t.Context()); err != nil || since.IsZero() {
			t.Errorf("%v, pruned since %v after an image was removed by others", err, since)
		}
	})
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{capacity: 1000, fail: map[string]error{"Disk": errors.New("boom")}}
		var events fakeEvents
		m := newManager(t, gc.ImageConfig{Store: s, Events: &events})
		stop := testrun.Start(t, m.Run)
		wait := func(d time.Duration, want int) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := events.all(); len(got) != want {
				t.Errorf("events %q, want %d", got, want)
			}
		}
		wait(time.Second, 0)   // a first failure is only logged
		wait(5*time.Minute, 1) // from the second on it is an event
		wait(5*time.Minute, 2) // each time
		s.breaks("Disk", nil)
		wait(5*time.Minute, 2) // well
		s.breaks("Disk", errors.New("boom"))
		wait(5*time.Minute, 2) // again a first one
		if got := events.all(); got[0] != "Warning ImageGCFailed" {
			t.Errorf("event %q", got[0])
		}
		stop()
	})
}

// With high 100 and no highest age nothing is ever removed, yet it is known
// what was used when.
func TestRunThatOnlyLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{capacity: 100, other: 50}
		s.add(50, "a")
		m := newManager(t, gc.ImageConfig{Store: s, Policy: &gc.ImagePolicy{High: 100, Low: 10}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := m.Run(ctx); err != nil || s.gone() != "" {
			t.Errorf("removed%s, %v", s.gone(), err)
		}
		if rep, err := m.Explain(t.Context()); err != nil || len(rep.Images) != 1 || time.Since(rep.Images[0].FirstSeen) != time.Hour {
			t.Errorf("last look %+v, %v", rep, err)
		}
	})
}

// A call that hangs ends with its deadline.
func TestHungStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &hangingStore{}
		m := newManager(t, gc.ImageConfig{Store: s})
		start := time.Now()
		if _, err := m.Collect(t.Context()); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 2*time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

type hangingStore struct{ fakeStore }

func (s *hangingStore) Images(ctx context.Context) ([]gc.Image, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestNewTellsAllMistakes(t *testing.T) {
	_, err := gc.NewImageCollector(gc.ImageConfig{
		Policy: &gc.ImagePolicy{High: 200}, Pins: []string{"UPPER"},
	})
	for _, want := range []string{"Store", "Policy.High 200", `Pins[0] "UPPER"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: no word of %s", err, want)
		}
	}
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		s := &fakeStore{capacity: 1000}
		s.add(50, "a", "b", "c")
		s.use("c")
		m := settled(t, gc.ImageConfig{Store: s, Metrics: reg, Policy: watermarks})
		s.other = 760
		if _, err := m.Collect(t.Context()); err == nil {
			t.Error("no error")
		}
		got := map[string]float64{}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, x := range f.GetMetric() {
				name := f.GetName()
				for _, l := range x.GetLabel() {
					name += " " + l.GetValue()
				}
				got[name] = x.GetCounter().GetValue() + x.GetGauge().GetValue()
			}
		}
		for name, want := range map[string]float64{
			"kubelet_image_garbage_collected_total space": 2,
			"nodewright_image_bytes in use":               50, "nodewright_image_bytes removable": 0,
		} {
			if got[name] != want {
				t.Errorf("%s = %v, want %v", name, got[name], want)
			}
		}
		if _, err := gc.NewImageCollector(gc.ImageConfig{Store: s, Metrics: reg}); err != nil {
			t.Errorf("a second one on the same registry: %v", err)
		}
	})
}
