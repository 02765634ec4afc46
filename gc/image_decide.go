package gc

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// The decision, as pure functions: which images may go, in which order, and how many bytes
// are wanted. No runtime, no disk and no clock is asked in this file.

// ImagePolicy defines when images are removed.
type ImagePolicy struct {
	// High and Low are percentages of the disk's capacity, 0 to 100: from
	// High on images are removed until Low is reached. Low may not be above
	// High.
	High, Low int
	// MinAge is how long an image stays at least after it was seen first.
	MinAge time.Duration
	// MaxAge is how long an image may go unused before it is removed however
	// much space there is; 0 is for ever. If not 0 it must be above MinAge.
	MaxAge time.Duration
	// Judge, if not nil, is a policy beyond these numbers, such as "keep the newest 3 of each
	// repository". It is given all images with the verdicts of the numbers, those that go first
	// in front. Where a verdict is ImageRemovable, ImageAged or ImageYoung, it may set
	// Verdict to one of these or to ImageKept, and Why; other changes have no effect. Each
	// pass calls it and waits for it. It must not call the collector.
	Judge func(images []JudgedImage)
}

// DefaultImagePolicy returns the kubelet's: imageGCHighThresholdPercent,
// imageGCLowThresholdPercent and imageMinimumGCAge. imageMaximumGCAge is off.
func DefaultImagePolicy() ImagePolicy {
	return ImagePolicy{High: 85, Low: 80, MinAge: 2 * time.Minute}
}

// validate names every value that is wrong. Low may equal High, which the kubelet's
// configuration does not allow.
func (p ImagePolicy) validate() error {
	var errs []error
	percent := func(name string, v int) {
		if v < 0 || v > 100 {
			errs = append(errs, fmt.Errorf("ImageConfig.Policy.%s %d: want 0 to 100", name, v))
		}
	}
	percent("High", p.High)
	percent("Low", p.Low)
	if p.Low > p.High {
		errs = append(errs, fmt.Errorf("ImageConfig.Policy.Low %d: want at most High, which is %d", p.Low, p.High))
	}
	if p.MinAge < 0 {
		errs = append(errs, fmt.Errorf("ImageConfig.Policy.MinAge %v: want 0 or more", p.MinAge))
	}
	// An image that may not go for its youth cannot be too old.
	if p.MaxAge != 0 && p.MaxAge <= p.MinAge {
		errs = append(errs, fmt.Errorf("ImageConfig.Policy.MaxAge %v: want 0 (for ever) or above MinAge, which is %v", p.MaxAge, p.MinAge))
	}
	return errors.Join(errs...)
}

// ImageVerdict is what is to become of an image, or why it stays. The zero value is one that may
// go: each reason to stay is stated.
type ImageVerdict uint8

// The verdicts.
const (
	// ImageRemovable images may go when space is wanted.
	ImageRemovable ImageVerdict = iota
	// ImageAged images are unused for longer than Policy.MaxAge, and go.
	ImageAged
	// ImageYoung images were seen first less than Policy.MinAge ago.
	ImageYoung
	// ImageInUse images have a container, be it a dead one, or a mount.
	ImageInUse
	// ImageStarting images are held by a pod that is being started.
	ImageStarting
	// fateDesired images are named by a pod that is stored to run here.
	fateDesired
	// Pinned images are pinned by the runtime, PinnedByName and PinnedByLabel
	// by Config.
	Pinned
	PinnedByName
	PinnedByLabel
	// ImageKept images are kept by ImagePolicy.Judge.
	ImageKept
	// numVerdicts is their number; each needs a name below.
	numVerdicts
)

// verdictNames are values of a metric's label: they must not change.
var verdictNames = [numVerdicts]string{
	"removable", "aged", "young", "in use", "starting", "desired", "pinned", "pinned by name", "pinned by label", "kept",
}

// String is the verdict in words, as metrics label it.
func (v ImageVerdict) String() string {
	if v >= numVerdicts {
		return "unknown"
	}
	return verdictNames[v]
}

// JudgedImage is an image with its verdict.
type JudgedImage struct {
	ImageFact
	Verdict ImageVerdict
	// Why is the verdict's particulars: who uses the image, or what pins it.
	Why string
}

// decideImages judges images. Those to be removed come first, in that order: the
// aged ones and then the removable ones, each by their last use, those never
// used first, and among equals by when they were seen first. The others follow
// by size, the largest first. facts are not changed.
func decideImages(p ImagePolicy, facts []ImageFact, now time.Time) []JudgedImage {
	judged := make([]JudgedImage, len(facts))
	for i := range facts {
		v, why := judge(p, &facts[i], now)
		judged[i] = JudgedImage{ImageFact: facts[i], Verdict: v, Why: why}
	}
	judged = inTurn(judged)
	if p.Judge == nil {
		return judged
	}
	asked := slices.Clone(judged)
	p.Judge(asked)
	answers := map[string]*JudgedImage{} // whatever order they are in
	for i := range asked {
		answers[asked[i].Image.key()] = &asked[i]
	}
	for i := range judged {
		j := &judged[i]
		if a := answers[j.Image.key()]; a != nil && free(j.Verdict) && (free(a.Verdict) || a.Verdict == ImageKept) {
			j.Verdict, j.Why = a.Verdict, a.Why
		}
	}
	return inTurn(judged)
}

// free reports whether a verdict is one of age alone: nobody needs the image.
func free(v ImageVerdict) bool { return v == ImageRemovable || v == ImageAged || v == ImageYoung }

// inTurn returns the images in the order of decideImages. It is a total one, so equal facts give
// equal reports.
func inTurn(judged []JudgedImage) []JudgedImage {
	order := make([]*JudgedImage, len(judged)) // which are quicker to move
	for i := range judged {
		order[i] = &judged[i]
	}
	slices.SortFunc(order, byTurn)
	out := make([]JudgedImage, len(judged))
	for i, j := range order {
		out[i] = *j
	}
	return out
}

// byTurn orders images as Decide says. The zero time of an image that was never used sorts
// before all others.
func byTurn(a, b *JudgedImage) int {
	turn := rank(a.Verdict)
	if c := cmp.Compare(turn, rank(b.Verdict)); c != 0 {
		return c
	}
	var c int
	if turn == rank(ImageInUse) {
		c = cmp.Compare(b.Image.Size, a.Image.Size)
	} else if c = a.LastUsed.Compare(b.LastUsed); c == 0 {
		c = a.FirstSeen.Compare(b.FirstSeen)
	}
	if c == 0 {
		c = strings.Compare(a.Image.ID, b.Image.ID)
	}
	if c == 0 {
		c = strings.Compare(a.Image.Handler, b.Image.Handler)
	}
	return c
}

// rank groups verdicts: too old, may go, stays.
func rank(v ImageVerdict) int {
	switch v {
	case ImageAged:
		return 0
	case ImageRemovable:
		return 1
	default:
		return 2
	}
}

// judge decides on one image; the text is Judged.Why. Of several reasons to stay the first
// one counts.
func judge(p ImagePolicy, f *ImageFact, now time.Time) (ImageVerdict, string) {
	// An image that was never used is as old as its first sight: one that was pulled in
	// advance does not go at once. In the kubelet it is older than any limit.
	unused := f.LastUsed
	if unused.IsZero() {
		unused = f.FirstSeen
	}
	switch {
	case len(f.Used) > 0:
		return ImageInUse, strings.Join(f.Used, ", ")
	case f.Held:
		return ImageStarting, ""
	case f.Image.Pinned:
		return Pinned, ""
	case f.Reference != "":
		return PinnedByName, f.Reference
	case f.Label != "":
		return PinnedByLabel, f.Label
	case f.Desired != "":
		return fateDesired, f.Desired
	// Unlike in the kubelet, MinAge protects from this as well.
	case p.MaxAge > 0 && now.Sub(unused) > p.MaxAge && now.Sub(f.FirstSeen) >= p.MinAge:
		return ImageAged, ""
	case now.Sub(f.FirstSeen) < p.MinAge:
		return ImageYoung, ""
	default:
		return ImageRemovable, ""
	}
}

// ErrNoCapacity says that the image disk's figures make no sense.
var ErrNoCapacity = errors.New("imagegc: the image disk has no capacity")

// WantImageSpace is how many bytes have to be freed; 0 if there is room enough. The
// usage is rounded up to a full percent, as the kubelet does it.
func WantImageSpace(p ImagePolicy, d ImageDisk) (int64, error) {
	if d.Capacity <= 0 {
		return 0, fmt.Errorf("%w: capacity %d", ErrNoCapacity, d.Capacity)
	}
	// The figures come from a runtime or a file system, and need not fit each other.
	available := max(0, min(d.Available, d.Capacity))
	if usage := 100 - share(available, 100, d.Capacity); usage < int64(p.High) {
		return 0, nil
	}
	// High is reached by the rounded percentage, but exactly Low may be met already: then
	// nothing is wanted.
	return max(0, share(d.Capacity, int64(100-p.Low), 100)-available), nil
}

// share is a*b/c, rounded down, for what does not fit in between. None is
// negative, and the result is at most as large as the larger of a and b.
func share(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(q)
}
