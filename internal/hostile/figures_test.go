//go:build !race

package hostile

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

var profiles = flag.String("profiles", "", "an existing directory, to which heap profiles of the agent are written")

// figures are what must not grow with what the agent ever did.
type figures struct {
	// Bytes of objects that are in use after a collection, and how many.
	Heap    uint64 `json:"heap"`
	Objects uint64 `json:"objects"`
	// Inuse is what the pages take that have such objects, in bytes.
	Inuse       uint64 `json:"inuse"`
	Goroutines  uint64 `json:"goroutines"`
	descriptors int
}

func (f figures) String() string {
	return fmt.Sprintf("live heap %.2f MiB in %d objects (pages %.1f MiB), %d goroutines, %d descriptors",
		float64(f.Heap)/(1<<20), f.Objects, float64(f.Inuse)/(1<<20), f.Goroutines, f.descriptors)
}

// least are the smaller ones of two.
func (f figures) least(g figures) figures {
	return figures{
		Heap: min(f.Heap, g.Heap), Objects: min(f.Objects, g.Objects), Inuse: min(f.Inuse, g.Inuse),
		Goroutines: min(f.Goroutines, g.Goroutines), descriptors: min(f.descriptors, g.descriptors),
	}
}

// figures reads what the agent has without garbage, at its quietest moment of
// some seconds.
func (m *machine) figures() figures {
	m.t.Helper()
	time.Sleep(2 * time.Second) // what a pod leaves for a moment
	least := m.figuresNow()
	for range 5 {
		time.Sleep(300 * time.Millisecond)
		least = least.least(m.figuresNow())
	}
	return least
}

func (m *machine) figuresNow() figures {
	m.t.Helper()
	var f figures
	m.must(json.Unmarshal(m.inside("/live"), &f))
	f.descriptors = m.descriptors()
	return f
}

// profile writes a heap profile to a file, if the flag says so.
func (m *machine) profile(name string) {
	m.t.Helper()
	if *profiles != "" {
		m.must(os.WriteFile(filepath.Join(*profiles, name), m.inside("/debug/pprof/heap?gc=1"), 0o600))
	}
}

// inside asks the file that was added to the agent.
func (m *machine) inside(path string) []byte {
	m.t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", m.path("heap.sock"))
	}, DisableKeepAlives: true}}
	resp, err := client.Get("http://agent" + path)
	m.must(err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	m.must(err)
	if resp.StatusCode != http.StatusOK {
		m.t.Fatalf("%s: %s: %s", path, resp.Status, body)
	}
	return body
}

// Limits of what may grow between the end of the warm-up and the end of a test: pools and maps
// that take what they took once more, and never much. Fewer rounds may grow less, so that they find the
// same: 3 KiB for each of TestChurn's pods. From round to round the heap varies by 0.15 MiB.
// The warm-up lasts until the memories of events, which are bounded, are nearly full.
const (
	warmUp          = 5 // rounds
	moreHeap        = 2 << 20
	heapOfRound     = 224 << 10
	variation       = 128 << 10
	moreGoroutines  = 5
	moreDescriptors = 3
)

// lives does something again and again, and has the agent be as large after the
// last round as it was after the first ones.
func (m *machine) lives(rounds int, round func(n int)) {
	m.t.Helper()
	rounds = max(rounds, warmUp+1)
	var before figures
	for n := range rounds {
		round(n)
		m.forget()
		switch {
		case n+1 == warmUp:
			before = m.figures()
			m.t.Logf("after %d of %d rounds: %v", n+1, rounds, before)
		case *profiles != "" && (n+1)%10 == 0:
			m.t.Logf("after %d of %d rounds: %v", n+1, rounds, m.figures())
			m.profile(fmt.Sprintf("heap-%d", n+1))
		}
	}
	after := m.figures()
	grown := func() bool {
		return after.Heap > before.Heap+uint64(min(moreHeap, variation+heapOfRound*(rounds-warmUp))) || after.Goroutines > before.Goroutines+moreGoroutines || after.descriptors > before.descriptors+moreDescriptors
	}
	// On a busy machine much is at work at every moment; what leaks does not go.
	for tries := 0; grown() && tries < 20; tries++ {
		after = after.least(m.figures())
	}
	m.t.Logf("after %d rounds: %v", rounds, after)
	if grown() {
		m.t.Errorf("it grows: %v after %d rounds, and %v after %d", before, warmUp, after, rounds)
	}
}

// forget forgets what this process has seen of the agent.
func (m *machine) forget() {
	m.rt.ForgetCalls()
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.execs)
}
