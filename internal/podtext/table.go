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

// Row returns the cells of an object. If wide is true, it returns the cells of all columns.
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

// Lines writes rows in columns. Columns never become narrower, so that later rows are aligned with
// earlier ones.
type Lines struct {
	W      io.Writer
	widths []int
}

// Write writes rows.
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

// Counts returns how many of the pod's lasting containers (regular ones and
// sidecars) are ready, their total, and the restarts of all its containers.
func Counts(p *v1.Pod) (ready, total int, restarts int32) {
	ready, total = readyOf(p)
	for _, list := range [][]v1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for i := range list {
			restarts += list[i].RestartCount
		}
	}
	return ready, total, restarts
}

// Age returns the time since a pod's creation, as [Created] returns it.
func Age(p *v1.Pod, now time.Time) string { return age(Created(p), now) }

// seenAnnotation is the kubelet's annotation with the time at which it first saw a pod.
const seenAnnotation = "kubernetes.io/config.seen"

// Created returns the time of a pod's creation. A pod of a manifest has none: for it Created returns
// when the agent first saw the pod, or its start if that was earlier, as after a restart of the agent.
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

// evictedReason is the reason of events about evictions: the kubelet's.
const evictedReason = "Evicted"

// Evictions are the evictions of a pod.
type Evictions struct {
	Count int32
	Last  time.Time
}

// EvictionsOf returns the evictions of pods, by UID, that events report.
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
