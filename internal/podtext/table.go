package podtext

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Row returns the cells of an object's row. Unless wide is true, it leaves out the wide columns.
func Row(columns []Column, o metav1.Object, wide bool, now time.Time) (cells []string) {
	for _, c := range columns {
		if wide || !c.Wide {
			cells = append(cells, OneLine(fmt.Sprint(c.Cell(o, now))))
		}
	}
	return cells
}

// Header returns the names of columns, as kubectl prints them.
func Header(columns []Column, wide bool) (cells []string) {
	for _, c := range columns {
		if wide || !c.Wide {
			cells = append(cells, strings.ToUpper(c.Name))
		}
	}
	return cells
}

// columnGap is the number of blanks between columns.
const columnGap = 3

// Lines writes rows of a table with aligned columns to W. A column does not become narrower, so that
// later rows are aligned with earlier ones.
type Lines struct {
	W      io.Writer
	widths []int
}

// Write writes rows. It first widens the columns for their longest cells.
func (l *Lines) Write(rows ...[]string) error {
	for _, cells := range rows {
		for i, c := range cells {
			if i == len(l.widths) {
				l.widths = append(l.widths, 0)
			}
			l.widths[i] = max(l.widths[i], utf8.RuneCountInString(c))
		}
	}
	for _, cells := range rows {
		var line strings.Builder
		for i, c := range cells {
			line.WriteString(c)
			if i < len(cells)-1 {
				line.WriteString(strings.Repeat(" ", columnGap+l.widths[i]-utf8.RuneCountInString(c)))
			}
		}
		if _, err := fmt.Fprintln(l.W, line.String()); err != nil {
			return err
		}
	}
	return nil
}

// Counts returns the number of the pod's ready containers and sidecars, the number of all
// containers and sidecars, and the restarts of all containers, including init containers.
func Counts(p *v1.Pod) (ready, total int, restarts int32) {
	ready, total = readyOf(p)
	for _, list := range [][]v1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for i := range list {
			restarts += list[i].RestartCount
		}
	}
	return ready, total, restarts
}

// Age returns the time since a pod's creation (see [Created]) in kubectl's format.
func Age(p *v1.Pod, now time.Time) string { return age(Created(p), now) }

// seenAnnotation is an annotation of the kubelet: the time at which the kubelet first saw the pod.
const seenAnnotation = "kubernetes.io/config.seen"

// Created returns the creation time of a pod. A pod from a manifest has no creation time. For such a
// pod, Created returns the time at which the agent first saw the pod, or the pod's start time if that
// is earlier, as after a restart of the agent.
func Created(p *v1.Pod) metav1.Time {
	if !p.CreationTimestamp.IsZero() {
		return p.CreationTimestamp
	}
	var created metav1.Time
	if seen, err := time.Parse(time.RFC3339Nano, p.Annotations[seenAnnotation]); err == nil {
		created = metav1.NewTime(seen)
	}
	if start := p.Status.StartTime; start != nil && (created.IsZero() || start.Before(&created)) {
		created = *start
	}
	return created
}

// evictedReason is the kubelet's reason for events about evictions.
const evictedReason = "Evicted"

// Evictions has the number of a pod's evictions and the time of the last one.
type Evictions struct {
	Count int32
	Last  time.Time
}

// EvictionsOf returns the evictions that events report, by the pod's UID.
func EvictionsOf(events []v1.Event) map[types.UID]Evictions {
	out := map[types.UID]Evictions{}
	for i := range events {
		e := &events[i]
		if e.Reason != evictedReason || e.InvolvedObject.Kind != "Pod" {
			continue
		}
		pod := out[e.InvolvedObject.UID]
		pod.Count += max(e.Count, 1)
		if e.LastTimestamp.After(pod.Last) {
			pod.Last = e.LastTimestamp.Time
		}
		out[e.InvolvedObject.UID] = pod
	}
	return out
}
