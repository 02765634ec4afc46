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

// The passes: each lists what there is, has decide.go judge it, and removes images one by
// one. One pass runs at a time, so that two of them never count the same freed bytes.

// round is one pass under way.
type round struct {
	m     *ImageCollector
	holds *hold.Pass[string]
	began time.Time
	// names are all that a pod may ask for each image by; the hold table goes by them.
	names [][]string // in the order of Report.Images
	gone  bool       // an image that was there at the last look
	// errs are failures that did not end the pass; round returns them joined.
	errs []error
	ImageReport
}

// Collect makes a pass: it removes the images that are too old, and, if the disk is used to
// ImagePolicy.High, as many of the others as bring it to Policy.Low. ErrNotEnough is in the tree
// of the error when there are not as many; what was done is in the Report in any case. It
// blocks while another pass is under way, and then until its own has ended.
func (m *ImageCollector) Collect(ctx context.Context) (ImageReport, error) {
	return m.round(ctx, func(r *round) {
		// Old images go first, and the disk is looked at after them: the space that they
		// took is free already. In the kubelet a failure here would keep the disk from being
		// looked at.
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
		// A pass that was cut short says nothing about whether there was enough.
		if r.free(ctx, want); r.Freed < want && ctx.Err() == nil {
			err := fmt.Errorf("%w: %s of %s freed; %s", ErrNotEnough, size(r.Freed), size(want), r.Summary())
			m.event(reasonNotEnough, err.Error())
			r.errs = append(r.errs, err)
		}
	})
}

// Reclaim removes images that may go until so many bytes more are available,
// or none is left, whatever the policy says of percentages and of the highest
// age. It returns how many bytes more are available; fewer than were asked for
// is no error, a removal that failed is one.
func (m *ImageCollector) Reclaim(ctx context.Context, bytes int64) (freed int64, err error) {
	rep, err := m.round(ctx, func(r *round) {
		d, err := m.disk(ctx)
		if err != nil {
			m.cfg.Log.Warn("sizes of images have to do", zap.Error(err))
		}
		r.Disk, r.Wanted = d, bytes
		// Aged images are the first in the order, and stay so: they go only as far as the
		// bytes are needed.
		for i := range r.Images {
			if o := &r.Images[i]; o.Verdict == ImageAged {
				o.Verdict = ImageRemovable
			}
		}
		r.free(ctx, bytes)
	})
	return rep.Freed, err
}

// Explain returns what there is and what would become of it, and removes nothing. It is a pass
// all the same: it notes uses, stores the history, and prunes records of images that
// somebody else removed.
func (m *ImageCollector) Explain(ctx context.Context) (ImageReport, error) {
	return m.round(ctx, func(r *round) { r.lookAtDisk(ctx) })
}

// Last returns the report of the last pass; its time is zero if there was none.
// It is shared and must not be changed.
func (m *ImageCollector) Last() ImageReport {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// round makes a pass: it finds out what there is, and has act do the rest.
func (m *ImageCollector) round(ctx context.Context, act func(*round)) (ImageReport, error) {
	select {
	// A channel and not a mutex: who waits for another pass can be canceled.
	case m.passing <- struct{}{}:
		defer func() { <-m.passing }()
	case <-ctx.Done():
		return ImageReport{}, ctx.Err()
	}
	// The holds come before the lists: of an image that is let go after this the lists may
	// not show the use yet, and Take refuses it.
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

// call bounds a call of the Store by ImageConfig.Timeout. It returns when the call does: the
// ImageStore has to heed its context.
func (m *ImageCollector) call(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	return f(ctx)
}

// look gathers the facts and judges them. The images come before the uses: a
// container that is made in between is then seen.
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
	// ImageReport.Images and names stay in step: remove finds the names by the index.
	r.Images = make([]ImageOutcome, 0, len(facts))
	r.names = make([][]string, 0, len(facts))
	for _, j := range decideImages(m.policy, facts, time.Now()) {
		r.Images = append(r.Images, ImageOutcome{JudgedImage: j})
		r.names = append(r.names, names[j.Image.key()])
	}
	return nil
}

// withIDs leaves out images without an ID, which nobody could remove, and reports
// them once. The runtime has such while it is damaged.
func (m *ImageCollector) withIDs(images []Image) []Image {
	good := slices.DeleteFunc(slices.Clone(images), func(i Image) bool { return i.ID == "" })
	n := len(images) - len(good)
	if n > 0 && !m.nameless {
		m.event(reasonInvalidImageID, fmt.Sprintf("the runtime lists %d images without an ID; they are not collected", n))
	}
	m.nameless = n > 0
	return good
}

// recall reads what an earlier run remembered, at the first pass whose lists could be had.
// It is tried once: a history that cannot be read is replaced at the end of the pass. The
// caller has m.passing.
func (m *ImageCollector) recall() {
	if m.recalled || m.cfg.Memory == nil {
		return
	}
	m.recalled = true
	h, err := recall(m.cfg.Memory, time.Now())
	if err != nil {
		m.cfg.Log.Warn("the history of images begins anew", zap.Error(err))
	}
	m.mu.Lock()
	m.history = h
	m.mu.Unlock()
}

// maxUsers bounds how many users of an image are named.
const maxUsers = 3

// facts joins what there is with what is remembered and wished, and brings the history up to
// date. The names that it returns are by Image.key. ImageConfig.Desired is called without m.mu.
func (r *round) facts(images []Image, uses []ImageUse) ([]ImageFact, map[string][]string) {
	m := r.m
	// Names are parsed once and kept from pass to pass, as nearly all are the same again.
	// Those that did not occur this time are dropped with the old map.
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
				// Where one side does not know the handler, the image counts as used: to
				// keep one too many costs space, to remove one too many costs a pod.
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
		for _, p := range m.labels {
			if p.matches(images[i].Labels) {
				f.Label = p.text
			}
		}
		facts[i] = f
	}
	return facts, names
}

// lookAtDisk reads how full the disk is. If it cannot, it notes why and returns false:
// nothing may be removed for space then.
func (r *round) lookAtDisk(ctx context.Context) bool {
	d, err := r.m.disk(ctx)
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("imagegc: %w", err))
		return false
	}
	r.Disk = d
	return true
}

// disk asks the Store; after an error the Disk is zero, which measure takes for unknown.
func (m *ImageCollector) disk(ctx context.Context) (d ImageDisk, err error) {
	err = m.call(ctx, func(ctx context.Context) (err error) { d, err = m.cfg.Store.Disk(ctx); return err })
	if err != nil {
		return ImageDisk{}, fmt.Errorf("look at the image disk: %w", err)
	}
	return d, nil
}

// removeAged removes all that are unused for too long, whatever space there is. One that
// cannot be removed stops none of the others.
func (r *round) removeAged(ctx context.Context) {
	for i := range r.Images {
		if r.Images[i].Verdict == ImageAged && ctx.Err() == nil {
			r.remove(ctx, i, forAge)
		}
	}
}

// free removes images, in the order of Decide, until the disk shows amount bytes more than
// at the start. If it cannot be looked at, the images' sizes are counted.
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
		// File systems may free blocks after the call has returned. By the sizes this was
		// enough, so it gets a moment before another image goes that somebody would have to
		// pull again.
		if r.Freed < amount && nominal >= amount {
			select {
			case <-ctx.Done():
			case <-time.After(r.m.cfg.Settle):
			}
			r.measure(ctx, nominal)
		}
	}
}

// measure sets Freed; nominal is the sum of the removed images' sizes in bytes, which counts
// where the disk cannot be looked at. What others write meanwhile makes Freed less: the disk
// has to come to its mark whoever fills it.
func (r *round) measure(ctx context.Context, nominal int64) {
	if r.Disk.Capacity <= 0 {
		r.Freed = nominal
		return
	}
	d, err := r.m.disk(ctx)
	if err != nil {
		r.m.cfg.Log.Warn("sizes of images have to do", zap.Error(err))
		r.Freed = max(r.Freed, nominal)
		return
	}
	r.Freed = max(0, d.Available-r.Disk.Available)
}

// remove removes the image with index i of Report.Images, unless somebody came to hold it,
// and reports whether it is gone. reason is the label of the metric. A failure is noted in
// the Outcome and in errs.
func (r *round) remove(ctx context.Context, i int, reason string) bool {
	o, m := &r.Images[i], r.m
	done, ok := r.holds.Take(r.names[i]...)
	if !ok {
		o.Verdict = ImageStarting
		return false
	}
	defer done()
	// A caller who goes away does not take the removal back: it is under way
	// until the runtime has answered, and so are those who wait for it.
	err := m.call(context.WithoutCancel(ctx), func(ctx context.Context) error { return m.cfg.Store.Remove(ctx, o.Image.ID, o.Image.Handler) })
	if err != nil {
		o.Err = err
		m.met.failed.Inc()
		r.errs = append(r.errs, fmt.Errorf("imagegc: remove %s: %w", o.Image.Name(), err))
		return false
	}
	o.Removed = true
	m.met.collected.WithLabelValues(reason).Inc()
	m.cfg.Log.Info("image removed", zap.String("image", o.Image.Name()), zap.String("id", o.Image.ID),
		zap.Int64("bytes", o.Image.Size), zap.String("for", reason))
	return true
}

// finish reports and stores what came of the pass, and prunes pull records.
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
		// All that are left, used ones too: Prune drops the records of those that are not
		// named.
		present = append(present, o.Image.ID)
	}
	m.last = r.ImageReport
	m.mu.Unlock()
	m.met.show(r.Images)
	if err := m.remember(); err != nil {
		m.cfg.Log.Warn("the history of images is not stored", zap.Error(err))
	}
	if r.gone && m.cfg.Prune != nil {
		if err := m.call(ctx, func(ctx context.Context) error { return m.cfg.Prune(ctx, present, r.began) }); err != nil {
			r.errs = append(r.errs, fmt.Errorf("imagegc: prune the records of removed images: %w", err))
		}
	}
}

// remember stores the history if there is anything new in it. m.mu is not held during the
// write, which waits for the disk.
func (m *ImageCollector) remember() error {
	if m.cfg.Memory == nil {
		return nil
	}
	m.mu.Lock()
	dirty := m.history.dirty
	// Before the write: a use that Release notes meanwhile has to be stored next time.
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
