package agent

import (
	"context"
	"time"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/gc/imagegc"
)

// imagesWithin bounds how long a question about images may take.
const imagesWithin = 30 * time.Second

// Images tells what images there are, and what would become of them.
func (a *Agent) Images(ctx context.Context) (local.Images, error) {
	ctx, cancel := context.WithTimeout(ctx, imagesWithin)
	defer cancel()
	r, err := a.gc.images.Explain(ctx)
	if r.Images == nil && err != nil {
		return local.Images{}, err
	}
	policy := imagegc.DefaultPolicy()
	if p := a.cfg.GC.Images; p != nil {
		policy = *p
	}
	out := local.Images{
		At: r.At, High: policy.High, Low: policy.Low, Summary: r.Summary(), Images: []local.Image{},
		Disk: local.ImageDisk{Capacity: r.Disk.Capacity, Available: r.Disk.Available, Images: r.Disk.Images},
	}
	if err != nil {
		out.Problem = err.Error() // of the disk; the images are known
	} else if out.Wanted, err = imagegc.Want(policy, r.Disk); err != nil {
		out.Problem = err.Error()
	}
	left := out.Wanted
	for i := range r.Images {
		o := &r.Images[i]
		goes := o.Verdict == imagegc.Aged || o.Verdict == imagegc.Removable && left > 0
		if goes {
			left -= o.Image.Size
		}
		out.Images = append(out.Images, local.Image{
			Name: o.Image.Name(), ID: o.Image.ID, Size: o.Image.Size, Verdict: o.Verdict.String(), Why: o.Why, Goes: goes,
			FirstSeen: o.FirstSeen, LastUsed: o.LastUsed,
		})
	}
	return out, nil
}
