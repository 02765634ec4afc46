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

// The decision, as pure functions: which images may be removed, in which order, and how many
// bytes to free.

// ImagePolicy defines when images are removed.
type ImagePolicy struct {
	// High and Low are percentages of the disk's capacity, 0 to 100. If the usage reaches High,
	// images are removed until the usage is at Low. Low must not exceed High.
	High, Low int
	// MinAge is the minimum time that an image is kept after it was first seen.
	MinAge time.Duration
	// MaxAge is the time after which an unused image is removed, regardless of the disk usage. It
	// must exceed MinAge. If it is 0, no image is removed because of its age.
	MaxAge time.Duration
	// Judge, if not nil, is a custom policy, such as "keep the newest 3 of each repository". It
	// gets all images with their verdicts, in the order of removal. It may change a Verdict of
	// ImageRemovable, ImageAged or ImageYoung to another of these or to ImageKept, and set Why;
	// other changes have no effect. Each pass calls it. It must not call the collector.
	Judge func(images []JudgedImage)
}

// DefaultImagePolicy returns the kubelet's defaults of imageGCHighThresholdPercent,
// imageGCLowThresholdPercent and imageMinimumGCAge. imageMaximumGCAge is off.
func DefaultImagePolicy() ImagePolicy {
	return ImagePolicy{High: 85, Low: 80, MinAge: 2 * time.Minute}
}

// validate returns an error with every invalid value. Low may equal High, unlike in the
// kubelet's configuration.
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
	// An image younger than MinAge cannot be older than MaxAge.
	if p.MaxAge != 0 && p.MaxAge <= p.MinAge {
		errs = append(errs, fmt.Errorf("ImageConfig.Policy.MaxAge %v: want 0 (for ever) or above MinAge, which is %v", p.MaxAge, p.MinAge))
	}
	return errors.Join(errs...)
}

// ImageVerdict says that an image may be removed, or why it is kept. The zero value means that
// it may be removed.
type ImageVerdict uint8

// The verdicts.
const (
	// ImageRemovable images may be removed if space is needed.
	ImageRemovable ImageVerdict = iota
	// ImageAged images are unused for longer than Policy.MaxAge, and are removed.
	ImageAged
	// ImageYoung images were seen first less than Policy.MinAge ago.
	ImageYoung
	// ImageInUse images are used by a container, running or dead.
	ImageInUse
	// ImageStarting images are held by a starting pod.
	ImageStarting
	// imageDesired images are named by a pod of this node (ImageConfig.Desired).
	imageDesired
	// Pinned images are pinned by the runtime. PinnedByName images are pinned by ImageConfig.Pins.
	Pinned
	PinnedByName
	// ImageKept images are kept by ImagePolicy.Judge.
	ImageKept
	// numVerdicts is the number of verdicts; each needs a name below.
	numVerdicts
)

// verdictNames are values of a metric label: they must not change.
var verdictNames = [numVerdicts]string{
	"removable", "aged", "young", "in use", "starting", "desired", "pinned", "pinned by name", "kept",
}

// String returns the verdict as in the metric label.
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
	// Why has details of the verdict: the users of the image, or what pins it.
	Why string
}

// decideImages judges images and returns them in the order of removal: aged images, then
// removable ones, both by the time of last use. Images that were never used come first, by the
// time of the first list with them. The kept images follow, the largest first. facts is not
// changed.
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
	answers := map[string]*JudgedImage{} // by key, since Judge may reorder
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

// free reports whether a verdict depends on age only: the image is not needed.
func free(v ImageVerdict) bool { return v == ImageRemovable || v == ImageAged || v == ImageYoung }

// inTurn returns the images in the order of removal; see decideImages. No two images are equal in
// this order, so equal facts give equal reports.
func inTurn(judged []JudgedImage) []JudgedImage {
	order := make([]*JudgedImage, len(judged)) // pointers are faster to sort
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

// byTurn compares images in the order of decideImages. The zero time of a never used image sorts
// first.
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

// rank returns the position of a verdict in the order aged, removable, kept.
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

// judge returns the verdict on one image and the text of JudgedImage.Why. If there are several
// reasons to keep the image, the first one counts.
func judge(p ImagePolicy, f *ImageFact, now time.Time) (ImageVerdict, string) {
	// The age of an image that was never used counts from the first list with it, so that an
	// image that was pulled in advance is not removed at once. In the kubelet such an image
	// exceeds any MaxAge.
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
	case f.Desired != "":
		return imageDesired, f.Desired
	// Unlike in the kubelet, MinAge applies here too.
	case p.MaxAge > 0 && now.Sub(unused) > p.MaxAge && now.Sub(f.FirstSeen) >= p.MinAge:
		return ImageAged, ""
	case now.Sub(f.FirstSeen) < p.MinAge:
		return ImageYoung, ""
	default:
		return ImageRemovable, ""
	}
}

// ErrNoCapacity means that the image disk has no capacity, so no percentage can be computed.
var ErrNoCapacity = errors.New("gc: the image disk has no capacity")

// WantImageSpace returns the number of bytes to free, or 0 if the usage is below High. The usage
// is rounded up to a full percent, as in the kubelet.
func WantImageSpace(p ImagePolicy, d ImageDisk) (int64, error) {
	if d.Capacity <= 0 {
		return 0, fmt.Errorf("%w: capacity %d", ErrNoCapacity, d.Capacity)
	}
	// The figures may be inconsistent.
	available := max(0, min(d.Available, d.Capacity))
	if usage := 100 - share(available, 100, d.Capacity); usage < int64(p.High) {
		return 0, nil
	}
	// The rounded percentage may reach High although Low is met.
	return max(0, share(d.Capacity, int64(100-p.Low), 100)-available), nil
}

// share returns a*b/c, rounded down, without overflow of the product. No argument is negative,
// and the result does not exceed the larger of a and b.
func share(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(q)
}
