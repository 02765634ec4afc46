package notify

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestPSI(t *testing.T) {
	for _, tt := range []struct {
		stall, window time.Duration
		line, err     string
	}{
		{0, 0, "some 100000 1000000\x00", ""},
		{0, 2 * time.Second, "some 200000 2000000\x00", ""},
		{50 * time.Millisecond, 500 * time.Millisecond, "some 50000 500000\x00", ""},
		{time.Second, time.Second, "some 1000000 1000000\x00", ""},
		{2 * time.Second, time.Second, "", "the stall is 2s"},
		{-1, time.Second, "", "the stall is -1ns"},
		{0, 100 * time.Millisecond, "", "the window is 100ms; want 500ms to 10s"},
		{0, 11 * time.Second, "", "the window is 11s"},
	} {
		p, ok := PSI("/x", tt.stall, tt.window).(psi)
		err := p.check()
		if !ok || tt.err == "" && (err != nil || p.line() != tt.line) || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%v in %v: %q, %v", tt.stall, tt.window, p.line(), err)
		}
	}
}

func TestCounts(t *testing.T) {
	got := counts("low 0\nhigh 3\nmax 12\noom 1\noom_kill\nodd x\n\noom_group_kill 18446744073709551615")
	want := map[string]uint64{"low": 0, "high": 3, "max": 12, "oom": 1, "oom_group_kill": 18446744073709551615}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("counts = %v", got)
	}
	for _, tt := range []struct{ before, after, want string }{
		{"high 1", "high 1", ""}, {"high 1", "high 2", "high"}, {"low 1", "low 2", ""},
		{"max 1\noom 1", "max 2\noom 2", "oom"}, {"oom 1\noom_kill 0", "oom 2\noom_kill 1", "oom_kill"}, {"max 5", "", ""},
	} {
		if got := grown(counts(tt.before), counts(tt.after)); got != tt.want {
			t.Errorf("from %q to %q: %q, want %q", tt.before, tt.after, got, tt.want)
		}
	}
}

func FuzzCounts(f *testing.F) {
	f.Add("low 0\nhigh 3\n")
	f.Fuzz(func(t *testing.T, data string) {
		for name := range counts(data) {
			if strings.ContainsAny(name, " \n") || !strings.Contains(data, name) {
				t.Errorf("a name %q", name)
			}
		}
	})
}

func TestRunTellsOfMistakes(t *testing.T) {
	for _, tt := range []struct {
		name string
		src  *Source
		want []string
	}{
		{"no trigger", New(), []string{"no trigger"}},
		{"wrong ones", New(PSI("/a", -1, 0), PSI("/b", 0, time.Minute)), []string{"/a: the stall", "/b: the window"}},
		{"files that are not there", New(PSI(t.TempDir()+"/a", 0, 0), Events("/no/b"), Usage("/no/c")), []string{"/a: ", "/no/b", "/no/c"}},
	} {
		err := tt.src.Run(t.Context(), func(string) { t.Error("it woke") })
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v; want %q", tt.name, err, want)
			}
		}
	}
}

func TestFake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Fake
		f.Fire("nobody listens")
		var got []string
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		run := func() { ended <- f.Run(ctx, func(c string) { got = append(got, c) }) }
		go run()
		synctest.Wait()
		f.Fire("psi")
		_ = f.Aim([]int64{100, 200})
		for _, n := range []int64{50, 99, 100, 150, 250, 90} {
			f.Use(n)
		}
		if want := []string{"psi", "usage", "usage", "usage"}; !reflect.DeepEqual(got, want) {
			t.Errorf("causes are %q", got)
		}
		gone := errors.New("gone")
		f.Fail(gone)
		if err := <-ended; !errors.Is(err, gone) {
			t.Errorf("Run = %v", err)
		}
		go run()
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}
