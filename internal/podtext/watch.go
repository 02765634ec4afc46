package podtext

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// watchInterval is the time between two lists of [Watch]. A list is a request over
// a unix socket on the same machine.
const watchInterval = time.Second

// Watch prints the table of the pods that list returns, and then a line for each
// changed pod. It returns nil when ctx ends, or the error of list. The last line of
// a removed pod has the status Deleted.
func Watch(ctx context.Context, w io.Writer, wide bool, list func(context.Context) ([]v1.Pod, error)) error {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	shown := map[types.UID]v1.Pod{}
	for first := true; ; first = false {
		pods, err := list(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if err := writeChanges(w, first, wide, shown, pods); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// writeChanges prints the pods whose line has changed since shown, and updates
// shown.
func writeChanges(w io.Writer, first, wide bool, shown map[types.UID]v1.Pod, pods []v1.Pod) error {
	tw := tabwriter.NewWriter(w, columnWidth, 8, 3, ' ', 0)
	if first {
		fmt.Fprintln(tw, header(wide))
	}
	now := time.Now()
	present := map[types.UID]bool{}
	for i := range pods {
		p := &pods[i]
		present[p.UID] = true
		if old, ok := shown[p.UID]; !ok || looks(&old, wide) != looks(p, wide) {
			fmt.Fprintln(tw, row(p, wide, now))
			shown[p.UID] = *p
		}
	}
	for uid, p := range shown {
		if !present[uid] {
			p.DeletionTimestamp = nil
			p.Status = v1.PodStatus{Reason: "Deleted", PodIP: p.Status.PodIP}
			fmt.Fprintln(tw, row(&p, wide, now))
			delete(shown, uid)
		}
	}
	return tw.Flush()
}

// columnWidth keeps the lines of later lists below the columns of the first, unless
// a name is longer.
const columnWidth = 12

// looks returns a pod's line without its age, which changes all the time.
func looks(p *v1.Pod, wide bool) string { return row(p, wide, p.CreationTimestamp.Time) }
