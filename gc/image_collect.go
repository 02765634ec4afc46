package gc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/gc/internal/hold"
)

// The passes. Each lists the images, decides (image_decide.go), and removes images one by one.
// Only one pass runs at a time, so that no two count the same freed bytes.

// round has the state of one pass, and the report that it returns.
type round struct {
	m     *ImageCollector
	holds *hold.Pass[string]
	began time.Time
	// names has all names of each image, for the hold table.
	names [][]string // names of the images, in the order of Report.Images
	gone  bool       // an image of the previous pass is missing now
	// errs has errors that did not end the pass.
	errs []error
	ImageReport
}

// Collect makes a pass: it removes images that are too old and, if the disk usage is at
// ImagePolicy.High or above, more images until it is at ImagePolicy.Low. If there are too few, the
// error wraps ErrNotEnough. The report is valid even with an error. If another pass is under way,
// Collect waits for its end. Then it blocks until its own pass has ended.
func (m *ImageCollector) Collect(ctx context.Context) (ImageReport, error) {
	return m.round(ctx, func(r *round) {
		// Aged images are removed before the disk usage is read. In the kubelet, a failure here
		// would end the pass.
		r.removeAged(ctx)
		if ctx.Err() != nil || !r.lookAtDisk(ctx) {
			return
		}
		want, err := WantImageSpace(m.policy, r.Disk)
		if err != nil {
			m.event(reasonInvalidCapacity, err.Error())
			r.errs = append(r.errs, err)
			return
		}
		if want == 0 {
			return
		}
		r.Wanted = want
		// An interrupted pass does not return ErrNotEnough.
		if r.free(ctx, want); r.Freed < want && ctx.Err() == nil {
			err := fmt.Errorf("%w: %s of %s freed; %s", ErrNotEnough, size(r.Freed), size(want), r.Summary())
			m.event(reasonNotEnough, err.Error())
			r.errs = append(r.errs, err)
		}
	})
}

// Reclaim removes unused images, regardless of High, Low and MaxAge. It stops when the available
// space of the disk has grown by the given number of bytes, or when no unused image is left. It
// returns the number of freed bytes. It is not an error if that is less than requested. A failed
// removal is an error.
func (m *ImageCollector) Reclaim(ctx context.Context, bytes int64) (freed int64, err error) {
	rep, err := m.round(ctx, func(r *round) {
		d, err := m.disk(ctx)
		if err != nil {
			m.cfg.Log.Warn("failed to read disk usage; counting sizes of images", zap.Error(err))
		}
		r.Disk, r.Wanted = d, bytes
		// Aged images come first, but are removed only as far as needed.
		for i := range r.Images {
			if o := &r.Images[i]; o.Verdict == ImageAged {
				o.Verdict = ImageRemovable
			}
		}
		r.free(ctx, bytes)
	})
	return rep.Freed, err
}

// Explain makes a pass that removes nothing, and returns its report. Like each pass it updates
// and stores the history, and calls ImageConfig.Prune if an image is gone.
func (m *ImageCollector) Explain(ctx context.Context) (ImageReport, error) {
	return m.round(ctx, func(r *round) { r.lookAtDisk(ctx) })
}

// round makes a pass: it lists and judges the images, then calls act.
func (m *ImageCollector) round(ctx context.Context, act func(*round)) (ImageReport, error) {
	select {
	// A channel instead of a mutex, so that a waiting caller can be canceled.
	case m.passing <- struct{}{}:
		defer func() { <-m.passing }()
	case <-ctx.Done():
		return ImageReport{}, ctx.Err()
	}
	// The pass in the hold table begins before the lists are read: if an image is released
	// later, the lists may not show its use yet, and Take refuses it.
	r := &round{m: m, holds: m.holds.Begin(), began: time.Now()}
	defer r.holds.End()
	r.At = r.began
	if err := r.look(ctx); err != nil {
		return r.ImageReport, err
	}
	act(r)
	r.finish(ctx)
	return r.ImageReport, errors.Join(r.errs...)
}

// call makes a call of the Store with callTimeout. It waits until the Store's method
// returns.
func (m *ImageCollector) call(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return f(ctx)
}

// look reads the facts and decides about the images. It lists images before uses, so that a
// container that is created in between is seen.
func (r *round) look(ctx context.Context) error {
	m := r.m
	var images []Image
	var uses []ImageUse
	err := m.call(ctx, func(ctx context.Context) (err error) { images, err = m.cfg.Store.Images(ctx); return err })
	if err != nil {
		return fmt.Errorf("imagegc: list images: %w", err)
	}
	images = m.withIDs(images)
	err = m.call(ctx, func(ctx context.Context) (err error) { uses, err = m.cfg.Store.Uses(ctx); return err })
	if err != nil {
		return fmt.Errorf("imagegc: list uses of images: %w", err)
	}
	m.recall()
	facts, names := r.facts(images, uses)
	// ImageReport.Images and names have the same order: remove uses one index for both.
	r.Images = make([]ImageOutcome, 0, len(facts))
	r.names = make([][]string, 0, len(facts))
	for _, j := range decideImages(m.policy, facts, time.Now()) {
		r.Images = append(r.Images, ImageOutcome{JudgedImage: j})
		r.names = append(r.names, names[j.Image.key()])
	}
	return nil
}

// withIDs leaves out images without an ID, which cannot be removed, and logs them once. A
// damaged runtime may list such images.
func (m *ImageCollector) withIDs(images []Image) []Image {
	good := slices.DeleteFunc(slices.Clone(images), func(i Image) bool { return i.ID == "" })
	n := len(images) - len(good)
	if n > 0 && !m.nameless {
		m.event(reasonInvalidImageID, fmt.Sprintf("the runtime lists %d images without an ID; they are not collected", n))
	}
	m.nameless = n > 0
	return good
}

// recall reads the stored history in the first pass whose lists succeed. A history that cannot be
// read is replaced at the end of the pass. The caller holds m.passing.
func (m *ImageCollector) recall() {
	if m.recalled || m.cfg.Memory == nil {
		return
	}
	m.recalled = true
	h, err := recall(m.cfg.Memory, time.Now())
	if err != nil {
		m.cfg.Log.Warn("failed to read history of images; starting a new one", zap.Error(err))
	}
	m.mu.Lock()
	m.history = h
	m.mu.Unlock()
}

// maxUsers is the maximum number of users that a report names for an image.
const maxUsers = 3

// facts returns the facts about all images, and their names by Image.key. It updates the
// history. It calls ImageConfig.Desired without m.mu.
func (r *round) facts(images []Image, uses []ImageUse) ([]ImageFact, map[string][]string) {
	m := r.m
	// Parsed names are cached from pass to pass. Unused ones are dropped with the old map.
	cache := make(map[string]string, len(m.names))
	full := func(name string) string {
		if n, ok := cache[name]; ok {
			return n
		}
		n, ok := m.names[name]
		if !ok {
			n = fullName(name)
		}
		cache[name] = n
		return n
	}
	used := make(map[string][]ImageUse, len(uses))
	for _, u := range uses {
		n := full(u.Image)
		used[n] = append(used[n], u)
	}
	desired := map[string]string{}
	if m.cfg.Desired != nil {
		for _, n := range m.cfg.Desired() {
			desired[full(n)] = n
		}
	}
	names := make(map[string][]string, len(images))
	users := make(map[string][]string, len(images))
	for i := range images {
		img := &images[i]
		key := img.key()
		names[key] = img.namesBy(full)
		for _, n := range names[key] {
			for _, u := range used[n] {
				// If one side does not know the handler, the image counts as used, to be safe.
				if u.Handler != img.Handler && u.Handler != "" && img.Handler != "" {
					continue
				}
				if by := users[key]; len(by) == 0 || by[len(by)-1] != u.By { // one may use it twice
					users[key] = append(by, u.By)
				}
			}
		}
	}
	m.names = cache

	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	r.gone = m.history.observe(images, func(i *Image) bool { return len(users[i.key()]) > 0 }, now)
	facts := make([]ImageFact, len(images))
	for i := range images {
		key := images[i].key()
		s := m.history.images[key]
		f := ImageFact{Image: images[i], FirstSeen: s.first, LastUsed: s.used, Used: users[key], Held: !r.holds.Free(names[key]...)}
		if len(f.Used) > maxUsers {
			more := len(f.Used) - maxUsers
			f.Used = append(slices.Clone(f.Used[:maxUsers]), fmt.Sprintf("%d more", more))
		}
		for _, n := range names[key] {
			if d := desired[n]; d != "" {
				f.Desired = d
			}
			for _, p := range m.pins {
				if p.matches(n) {
					f.Reference = p.text
				}
			}
		}
		facts[i] = f
	}
	return facts, names
}

// lookAtDisk reads the disk usage. After an error, which it records, it returns false: nothing
// may be removed for space then.
func (r *round) lookAtDisk(ctx context.Context) bool {
	d, err := r.m.disk(ctx)
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("imagegc: %w", err))
		return false
	}
	r.Disk = d
	return true
}

// disk calls Store.Disk. After an error it returns zero, which means unknown.
func (m *ImageCollector) disk(ctx context.Context) (d ImageDisk, err error) {
	err = m.call(ctx, func(ctx context.Context) (err error) { d, err = m.cfg.Store.Disk(ctx); return err })
	if err != nil {
		return ImageDisk{}, fmt.Errorf("look at the image disk: %w", err)
	}
	return d, nil
}

// removeAged removes all images that are unused for longer than MaxAge. It continues after an
// error.
func (r *round) removeAged(ctx context.Context) {
	for i := range r.Images {
		if r.Images[i].Verdict == ImageAged && ctx.Err() == nil {
			r.remove(ctx, i, forAge)
		}
	}
}

// free removes images, in the order of decideImages, until amount bytes more are available than at
// the start. If the free space of the disk cannot be measured, it adds up the sizes of the removed
// images instead.
func (r *round) free(ctx context.Context, amount int64) {
	nominal := int64(0)
	for i := range r.Images {
		if r.Freed >= amount || ctx.Err() != nil {
			return
		}
		if r.Images[i].Verdict != ImageRemovable || !r.remove(ctx, i, forSpace) {
			continue
		}
		nominal += r.Images[i].Image.Size
		r.measure(ctx, nominal)
		// File systems may free blocks with a delay. By the sizes this was enough, so wait
		// before another image is removed.
		if r.Freed < amount && nominal >= amount {
			select {
			case <-ctx.Done():
			case <-time.After(r.m.settle):
			}
			r.measure(ctx, nominal)
		}
	}
}

// measure sets Freed, in bytes, to the growth of the available space since the start of the pass.
// Writes of other programs reduce it. If the available space cannot be measured, measure uses
// nominal, which is the sum of the sizes of the removed images.
func (r *round) measure(ctx context.Context, nominal int64) {
	if r.Disk.Capacity <= 0 {
		r.Freed = nominal
		return
	}
	d, err := r.m.disk(ctx)
	if err != nil {
		r.m.cfg.Log.Warn("failed to read disk usage; counting sizes of images", zap.Error(err))
		r.Freed = max(r.Freed, nominal)
		return
	}
	r.Freed = max(0, d.Available-r.Disk.Available)
}

// remove removes the image with index i of Report.Images, unless a pod holds it, and reports
// whether it is gone. reason is the metric label. An error is stored in the outcome and in errs.
func (r *round) remove(ctx context.Context, i int, reason string) bool {
	o, m := &r.Images[i], r.m
	done, ok := r.holds.Take(r.names[i]...)
	if !ok {
		o.Verdict = ImageStarting
		return false
	}
	defer done()
	// The removal is not cancelled with the caller: other callers wait for its result.
	err := m.call(context.WithoutCancel(ctx), func(ctx context.Context) error { return m.cfg.Store.Remove(ctx, o.Image.ID, o.Image.Handler) })
	if err != nil {
		o.Err = err
		r.errs = append(r.errs, fmt.Errorf("imagegc: remove %s: %w", o.Image.Name(), err))
		return false
	}
	o.Removed = true
	m.met.collected.WithLabelValues(reason).Inc()
	m.cfg.Log.Info("removed image", zap.String("image", o.Image.Name()), zap.String("id", o.Image.ID),
		zap.Int64("bytes", o.Image.Size), zap.String("for", reason))
	return true
}

// finish logs, stores and exports the result of the pass, and calls ImageConfig.Prune.
func (r *round) finish(ctx context.Context) {
	m := r.m
	var present []string
	m.mu.Lock()
	for i := range r.Images {
		o := &r.Images[i]
		if o.Removed {
			r.gone, m.history.dirty = true, true
			delete(m.history.images, o.Image.key())
			continue
		}
		// All remaining images, including used ones: Prune removes the records of all others.
		present = append(present, o.Image.ID)
	}
	m.mu.Unlock()
	m.met.show(r.Images)
	if err := m.remember(); err != nil {
		m.cfg.Log.Warn("failed to store history of images", zap.Error(err))
	}
	if r.gone && m.cfg.Prune != nil {
		if err := m.call(ctx, func(ctx context.Context) error { return m.cfg.Prune(ctx, present, r.began) }); err != nil {
			r.errs = append(r.errs, fmt.Errorf("imagegc: prune the records of removed images: %w", err))
		}
	}
}

// remember stores the history if it has changed. m.mu is not held during the write.
func (m *ImageCollector) remember() error {
	if m.cfg.Memory == nil {
		return nil
	}
	m.mu.Lock()
	dirty := m.history.dirty
	// Before the write: a change by Release during the write must be stored next time.
	m.history.dirty = false
	raw, err := m.history.encode()
	m.mu.Unlock()
	if err != nil || !dirty {
		return err
	}
	if err := m.cfg.Memory.Write(memoryKey, raw); err != nil {
		m.mu.Lock()
		m.history.dirty = true
		m.mu.Unlock()
		return err
	}
	return nil
}
