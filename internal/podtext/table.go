package podtext

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Age returns the time since a pod's creation. If the creation time is not known, it returns the
// time since the pod's start.
func Age(p *v1.Pod, now time.Time) string {
	if p.CreationTimestamp.IsZero() && p.Status.StartTime != nil {
		return age(*p.Status.StartTime, now)
	}
	return age(p.CreationTimestamp, now)
}
