package pressure

import (
	"context"
	"math"
	"time"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/gc"
)

// imagesWithin limits a request about images.
const imagesWithin = 30 * time.Second

// Images returns the images, and what garbage collection would do with each. It removes nothing.
func (p *Collection) Images(ctx context.Context) (local.Images, error) {
	ctx, cancel := context.WithTimeout(ctx, imagesWithin)
	defer cancel()
	r, err := p.images.Explain(ctx)
	if r.Images == nil && err != nil {
		return local.Images{}, err
	}
	policy := gc.DefaultImagePolicy()
	if p.cfg.ImagePolicy != nil {
		policy = *p.cfg.ImagePolicy
	}
	out := local.Images{
		At: r.At, High: policy.High, Low: policy.Low, Summary: r.Summary(),
		Disk: local.ImageDisk{Capacity: r.Disk.Capacity, Available: r.Disk.Available, Images: r.Disk.Images},
	}
	if err != nil {
		out.Problem = err.Error() // an error of the disk; the images are known
	} else if out.Wanted, err = gc.WantImageSpace(policy, r.Disk); err != nil {
		out.Problem = err.Error()
	}
	out.Images = list(r.Images, out.Wanted)
	return out, nil
}

// list converts images for people. It marks those that garbage collection would remove now: aged
// images and, in the order of the list, removable images until wanted bytes are free.
func list(images []gc.ImageOutcome, wanted int64) []local.Image {
	out := make([]local.Image, 0, len(images))
	for i := range images {
		o := &images[i]
		goes := o.Verdict == gc.ImageAged || o.Verdict == gc.ImageRemovable && wanted > 0
		if goes {
			wanted -= o.Image.Size
		}
		out = append(out, local.Image{
			Name: o.Image.Name(), ID: o.Image.ID, Size: o.Image.Size, Verdict: o.Verdict.String(), Why: o.Why, Goes: goes,
			FirstSeen: o.FirstSeen, LastUsed: o.LastUsed,
		})
	}
	return out
}

// Reclaimer returns the reclaimer for package eviction. It has the methods of an eviction.Reclaimer
// without naming the type, so that a program without evictions does not link them.
func (p *Collection) Reclaimer() Reclaimer { return Reclaimer{p} }

// Reclaimer removes, on request, everything that no pod needs.
type Reclaimer struct{ part *Collection }

// Containers removes dead containers, and everything of pods that have ended.
func (r Reclaimer) Containers(ctx context.Context) error {
	_, err := r.part.containers.Reclaim(ctx)
	return err
}

// Images removes images that no pod needs.
func (r Reclaimer) Images(ctx context.Context) error {
	_, err := r.part.images.Reclaim(ctx, math.MaxInt64)
	return err
}
