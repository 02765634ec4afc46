package pressure

import (
	"context"
	"math"
	"time"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/gc"
)

// imagesWithin bounds how long a question about images may take.
const imagesWithin = 30 * time.Second

// Images answers which images there are, and what would become of them. It
// removes nothing.
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
		out.Problem = err.Error() // of the disk; the images are known
	} else if out.Wanted, err = gc.WantImageSpace(policy, r.Disk); err != nil {
		out.Problem = err.Error()
	}
	out.Images = list(r.Images, out.Wanted)
	return out, nil
}

// list writes images for people. As many bytes as are wanted go.
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

// Reclaimer returns what package eviction asks before pods have to end. It has
// the methods of an eviction.Reclaimer, which it does not name: who leaves
// evictions out does not link them.
func (p *Collection) Reclaimer() Reclaimer { return Reclaimer{p} }

// Reclaimer has everything removed at once that no pod needs.
type Reclaimer struct{ part *Collection }

// Containers removes dead containers, and all that is left of pods that have
// ended.
func (r Reclaimer) Containers(ctx context.Context) error {
	_, err := r.part.containers.Reclaim(ctx)
	return err
}

// Images removes images that no pod needs.
func (r Reclaimer) Images(ctx context.Context) error {
	_, err := r.part.images.Reclaim(ctx, math.MaxInt64)
	return err
}
