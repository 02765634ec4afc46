//go:build linux

package image

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Operations of an [Observer]. They are values of a metric's label and must not change.
const (
	OpPull     = "pull"     // PullImage
	OpImport   = "import"   // Import and ImportLayout, including those at the start
	OpDownload = "download" // of a blob from a registry and its mirrors, including all tries
	OpUnpack   = "unpack"   // of a layer, without the waits for its bytes or a slot
)

// Observer is called after each operation, from any goroutine. It must not block.
type Observer interface {
	// Observe is called with the duration of the operation op and the gRPC code of its error. The
	// code is OK if there was no error, and Canceled if all callers have given up.
	Observe(op string, took time.Duration, code codes.Code)
}

// nobody is the Observer of a store whose Config.Observer is nil, so that no caller has to check
// for nil.
type nobody struct{}

// Observe implements Observer.
func (nobody) Observe(string, time.Duration, codes.Code) {}

// observe reports an operation that started at begin. waited is a part of the time since then
// that is not counted.
func (s *Store) observe(op string, begin time.Time, waited time.Duration, err error) {
	// The two times are measured separately, so the difference could be below zero by
	// nanoseconds.
	s.cfg.Observer.Observe(op, max(0, time.Since(begin)-waited), status.Code(coded(err)))
}

// Counts are numbers of a store at one point in time. The numbers that only grow begin at 0 in
// New.
type Counts struct {
	Images     int   // complete images
	Layers     int   // on the disk
	LayerBytes int64 // size of the files in them
	Flights    int   // layers that are being downloaded or unpacked
	Owners     int   // users of layers

	Downloaded uint64 // bytes of blobs from registries
	// DamagedLayers, DamagedRecords and DamagedLeases count damaged files that were set aside.
	DamagedLayers, DamagedRecords, DamagedLeases uint64
}

// counters are the counts that only grow.
type counters struct {
	downloaded, layers, records, leases atomic.Uint64
}

// Counts returns the counts. It does not wait for the disk. Images and layers are 0 until Run has
// read the directory.
func (s *Store) Counts() Counts {
	c := Counts{
		Downloaded: s.counters.downloaded.Load(), DamagedLayers: s.counters.layers.Load(),
		DamagedRecords: s.counters.records.Load(), DamagedLeases: s.counters.leases.Load(),
	}
	// Before Run has read the disk, 0 images would look like a loss; only the counters are valid.
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

// setLayerAside moves a damaged layer's directory away, and counts it.
func (s *Store) setLayerAside(name string) error {
	err := s.putAway(name)
	if err == nil {
		s.counters.layers.Add(1)
	}
	return err
}
