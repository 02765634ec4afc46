//go:build linux

package image

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Operations that an [Observer] hears of. They are values of a metric's label and do
// not change.
const (
	OpPull     = "pull"     // PullImage
	OpImport   = "import"   // Import and ImportLayout, those of the start included
	OpDownload = "download" // of a blob from a registry and its mirrors, with all tries
	OpUnpack   = "unpack"   // of a layer, less the time that it waited for its bytes or for its turn
)

// Observer hears of the operations that ended, from any goroutine. It must not
// wait.
type Observer interface {
	// Observe is called with the time that op took, and the code of its error, OK
	// for none. An operation whose callers have all gone is Canceled.
	Observe(op string, took time.Duration, code codes.Code)
}

// nobody is the Observer of a store without one, so that no caller asks for nil.
type nobody struct{}

// Observe implements Observer.
func (nobody) Observe(string, time.Duration, codes.Code) {}

// observe reports an operation that began at begin and did nothing but wait for
// some of the time.
func (s *Store) observe(op string, begin time.Time, waited time.Duration, err error) {
	// Clocks of the two measurements differ by nanoseconds: never below zero.
	s.cfg.Observer.Observe(op, max(0, time.Since(begin)-waited), status.Code(coded(err)))
}

// Counts are numbers of a store, of one moment. Those that only grow begin at 0
// with New.
type Counts struct {
	Images     int   // that are whole
	Layers     int   // on the disk
	LayerBytes int64 // of the files in them
	Flights    int   // layers that are being got
	Owners     int   // who use layers

	Downloaded uint64 // bytes of blobs from registries
	// What was found damaged and set aside.
	DamagedLayers, DamagedRecords, DamagedLeases uint64
}

// counters are the numbers that only grow.
type counters struct {
	downloaded, layers, records, leases atomic.Uint64
}

// Counts returns numbers of images and layers: none before Run has read what is
// there. It asks nobody and waits for no disk.
func (s *Store) Counts() Counts {
	c := Counts{
		Downloaded: s.counters.downloaded.Load(), DamagedLayers: s.counters.layers.Load(),
		DamagedRecords: s.counters.records.Load(), DamagedLeases: s.counters.leases.Load(),
	}
	// Before Run has read the disk, zero images would look like a loss; the counters
	// alone are true.
	select {
	case <-s.ready:
	default:
		return c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Images with a missing layer do not count: they are pulled again at their next
	// use.
	for _, r := range s.images {
		if s.whole(r) {
			c.Images++
		}
	}
	for _, l := range s.layers {
		c.LayerBytes += l.Size
	}
	c.Layers, c.Flights, c.Owners = len(s.layers), len(s.flights), len(s.leases)
	return c
}

// setLayerAside puts a damaged layer's directory away, and counts it.
func (s *Store) setLayerAside(name string) error {
	err := s.putAway(name)
	if err == nil {
		s.counters.layers.Add(1)
	}
	return err
}
