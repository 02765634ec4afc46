package gc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/gc/internal/hold"
)

// ImageStore is the part of an image service that this package uses. Calls must return when ctx
// ends.
type ImageStore interface {
	// Images lists all images. The collector keeps the result and does not change it.
	Images(ctx context.Context) ([]Image, error)
	// Uses lists the images that containers use, including dead ones.
	Uses(ctx context.Context) ([]ImageUse, error)
	// Disk returns the current usage of the images' disk.
	Disk(ctx context.Context) (ImageDisk, error)
	// Remove removes an image with all its names. A missing image is a success.
	Remove(ctx context.Context, id, handler string) error
}

// Reasons of events (the kubelet's).
const (
	// ReasonImageGCFailed is used from the second failure in a row on: the runtime may be
	// starting at the first.
	ReasonImageGCFailed   = "ImageGCFailed"
	reasonNotEnough       = "FreeDiskSpaceFailed"
	reasonInvalidCapacity = "InvalidDiskCapacity"
	reasonInvalidImageID  = "InvalidImageID"
)

// ErrNotEnough means that all removable images were removed, and disk usage is still above
// Policy.Low.
var ErrNotEnough = errors.New("imagegc: not enough unused images")

// ImageConfig holds what an [ImageCollector] needs. Store is required; the zero value of every
// other field means the default named beside it.
type ImageConfig struct {
	Store  ImageStore
	Policy *ImagePolicy // DefaultImagePolicy()
	// Pins are names of images to keep: with a tag or digest, without one for a whole
	// repository, or a prefix that ends in /* for several repositories. Short names are
	// completed: busybox means docker.io/library/busybox.
	Pins []string
	// Desired returns the images named by the pods of this node that have not ended. It is called
	// in every pass, and must not start a pass: that would be a deadlock. If Desired is nil, no
	// image is desired.
	Desired func() []string
	// Prune is called after a pass that removed an image or found one missing, with the IDs of
	// all remaining images and the time at which the pass began. It is for images.Manager.Prune.
	// If Prune is nil, nothing is called.
	Prune func(ctx context.Context, present []string, since time.Time) error
	// Memory keeps the times of images' last use over restarts. If Memory is nil, they are lost
	// with the process.
	Memory ImageMemory
	Events Events // if nil, no events are recorded

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

const (
	// imageInterval is the time between passes, as in the kubelet.
	imageInterval = 5 * time.Minute
	// settleTime is how long a pass waits for the file system to show freed space, once the sizes
	// of the removed images add up to enough. The kubelet does not wait, since it counts sizes.
	settleTime = time.Second
)

// ImageCollector keeps the usage of a node's image disk below a threshold: it removes the
// images that have been unused the longest, and none that is needed.
//
//	m, err := gc.NewImageCollector(gc.ImageConfig{Store: store, Desired: pods.Images})
//	if err != nil {
//		return err
//	}
//	go m.Run(ctx)                        // every 5 minutes
//	freed, err := m.Reclaim(ctx, 1<<30)  // now, for an eviction manager
//	report, err := m.Explain(ctx)        // what would go, and why the rest stays
//
// It needs an [ImageStore]; package crigc implements one over a CRI client.
//
// Its methods may be called from any goroutine.
//
// # Images that are kept
//
// Images of containers, dead ones included, and mounted images; images that are pinned by
// the runtime or ImageConfig.Pins; images of desired pods (ImageConfig.Desired);
// images younger than Policy.MinAge; and images held by pods that are being started. [ImageReport]
// contains the reason for each image.
//
// # Pods that start
//
// A newly pulled image has no container yet. To start a pod, hold the image before looking
// for it, and release it once its container is created:
//
//	h := m.Hold()
//	defer h.Release()
//	look, err := h.Name(ctx, image) // waits for a removal under way
//	if err != nil {
//		return err
//	}
//	for intact := false; !intact; { // again, if it went under another name
//		img, err := images.Ensure(ctx, request)
//		if err != nil {
//			return err
//		}
//		if intact, err = look.Got(ctx, img.Ref); err != nil {
//			return err
//		}
//	}
//	// create the container
//
// No pass can then remove the image between Name and Release. Without a hold, a new image is
// protected by Policy.MinAge alone, as in the kubelet.
//
// # Amount
//
// The usage of the disk is read after each removal, and the pass ends when enough is free. The
// sizes that runtimes report are no help: they count shared layers for each image, and usually do
// not include the unpacked size.
//
// # Faults
//
// A failed list ends the pass; an image that cannot be removed is skipped and reported. Every
// call has a deadline. With ImageConfig.Memory the history survives a restart: the age of an
// image counts from when it was first seen, not from the restart. A history that cannot be
// read is discarded.
type ImageCollector struct {
	cfg    ImageConfig
	policy ImagePolicy
	pins   []pin
	met    *metrics
	settle time.Duration // settleTime; shorter in a test
	holds  hold.Table[string]

	// passing is held during a pass, and guards the fields below.
	passing  chan struct{}
	recalled bool
	nameless bool              // a list had images without an ID, and this was logged
	names    map[string]string // results of fullName by name, from the last pass

	// mu guards the fields below, which Hold.Release and Last use during a pass.
	mu      sync.Mutex
	history history
}

// NewImageCollector checks cfg and returns a collector, which Run starts. The error names every
// invalid field. The first pass reads ImageConfig.Memory.
func NewImageCollector(cfg ImageConfig) (*ImageCollector, error) {
	m := &ImageCollector{policy: DefaultImagePolicy(), passing: make(chan struct{}, 1), settle: settleTime}
	if cfg.Policy != nil {
		m.policy = *cfg.Policy
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	var errs []error
	if cfg.Store == nil {
		errs = append(errs, errors.New("ImageConfig.Store is required"))
	}
	errs = append(errs, m.policy.validate())
	for i, s := range cfg.Pins {
		p, err := parsePin(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("ImageConfig.Pins[%d] %q: %w", i, s, err))
		}
		m.pins = append(m.pins, p)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("imagegc: %w", err)
	}
	met, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("imagegc: %w", err)
	}
	m.cfg, m.met = cfg, met
	return m, nil
}

// Run makes a pass when it starts and every five minutes, and returns nil when ctx ends. A
// failed pass is logged; from the second failure in a row on it is also an event. With
// Policy.High 100 and no MaxAge, Run removes nothing and only updates the history.
func (m *ImageCollector) Run(ctx context.Context) error {
	tick := time.NewTicker(imageInterval)
	defer tick.Stop()
	failures := 0
	for {
		var err error
		// The history must be up to date for Reclaim, and for a later change of the policy.
		if m.policy.High == 100 && m.policy.MaxAge == 0 {
			_, err = m.Explain(ctx)
		} else {
			_, err = m.Collect(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			failures = 0
		default:
			failures++
			m.cfg.Log.Warn("failed to collect images", zap.Int("inARow", failures), zap.Error(err))
			if failures > 1 {
				m.event(ReasonImageGCFailed, err.Error())
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// event records a warning event of the node, if ImageConfig.Events is set. It is called without
// m.mu.
func (m *ImageCollector) event(reason, message string) {
	if m.cfg.Events != nil {
		m.cfg.Events.Event(eventWarning, reason, message)
	}
}
