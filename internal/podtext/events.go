package podtext

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// WriteEvents prints events, the newest last. now is the time for their ages. It
// sorts events in place.
func WriteEvents(w io.Writer, events []v1.Event, now time.Time) error {
	slices.SortStableFunc(events, func(a, b v1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	tw := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	fmt.Fprintln(tw, "NAMESPACE\tLAST SEEN\tCOUNT\tTYPE\tREASON\tOBJECT\tMESSAGE")
	for i := range events {
		e := &events[i]
		fmt.Fprintf(tw, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", OrNone(e.InvolvedObject.Namespace), duration.HumanDuration(max(0, now.Sub(e.LastTimestamp.Time))),
			e.Count, e.Type, OneLine(e.Reason), object(&e.InvolvedObject), OneLine(e.Message))
	}
	return tw.Flush()
}

func object(o *v1.ObjectReference) string { return OneLine(orWord(o.Kind, "Pod") + "/" + o.Name) }
