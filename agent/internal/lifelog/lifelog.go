// Package lifelog logs the transitions of pods: a container has started or ended, the pod has
// become ready or not ready, or has ended.
package lifelog

import (
	"slices"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// fact is a kind of transition.
type fact uint8

const (
	containerStarted fact = iota
	containerEnded
	podReady
	podNotReady
	podEnded
)

// line is a transition for the log.
type line struct {
	fact   fact
	fields []zap.Field
}

// Log logs the transitions of a pod between two statuses, a line each.
func Log(log *zap.Logger, pod *v1.Pod, before, now *v1.PodStatus) {
	log = log.With(zap.String("pod", pod.Namespace+"/"+pod.Name))
	for _, l := range lines(before, now, time.Now()) {
		switch l.fact {
		case containerStarted:
			log.Info("container started", l.fields...)
		case containerEnded:
			log.Info("container ended", l.fields...)
		case podReady:
			log.Info("pod ready", l.fields...)
		case podNotReady:
			log.Info("pod not ready", l.fields...)
		case podEnded:
			log.Info("pod ended", l.fields...)
		}
	}
}

// lines returns the transitions of a pod between two statuses.
func lines(before, now *v1.PodStatus, at time.Time) []line {
	var out []line
	old := slices.Concat(before.InitContainerStatuses, before.ContainerStatuses)
	for _, c := range slices.Concat(now.InitContainerStatuses, now.ContainerStatuses) {
		var was v1.ContainerStatus
		if i := slices.IndexFunc(old, func(s v1.ContainerStatus) bool { return s.Name == c.Name }); i >= 0 {
			was = old[i]
		}
		name := zap.String("container", c.Name)
		if t := ended(&c); t != nil && !equality.Semantic.DeepEqual(t, ended(&was)) && (t.ContainerID == "" || t.ContainerID != endedID(&was)) {
			fields := []zap.Field{name, zap.Int32("exit", t.ExitCode), zap.String("reason", t.Reason), zap.Int32("restarts", c.RestartCount)}
			if !t.StartedAt.IsZero() {
				fields = append(fields, zap.String("after", max(0, t.FinishedAt.Sub(t.StartedAt.Time)).Round(100*time.Millisecond).String()))
			}
			out = append(out, line{containerEnded, fields})
		}
		if c.State.Running != nil && (was.State.Running == nil || was.ContainerID != c.ContainerID) {
			out = append(out, line{containerStarted, []zap.Field{name, zap.Int32("restarts", c.RestartCount)}})
		}
	}
	switch is := isReady(now); {
	case is == isReady(before):
	case is:
		fields := []zap.Field(nil)
		if now.StartTime != nil {
			fields = append(fields, zap.String("took", max(0, at.Sub(now.StartTime.Time)).Round(100*time.Millisecond).String()))
		}
		out = append(out, line{podReady, fields})
	default:
		out = append(out, line{podNotReady, nil})
	}
	if now.Phase != before.Phase && (now.Phase == v1.PodSucceeded || now.Phase == v1.PodFailed) {
		fields := []zap.Field{zap.String("phase", string(now.Phase))}
		if now.Reason != "" {
			fields = append(fields, zap.String("reason", now.Reason))
		}
		out = append(out, line{podEnded, fields})
	}
	return out
}

// ended returns the last termination of a container. It returns nil if the container has never
// terminated.
func ended(c *v1.ContainerStatus) *v1.ContainerStateTerminated {
	if c.State.Terminated != nil {
		return c.State.Terminated
	}
	return c.LastTerminationState.Terminated
}

func endedID(c *v1.ContainerStatus) string {
	if t := ended(c); t != nil {
		return t.ContainerID
	}
	return ""
}

func isReady(st *v1.PodStatus) bool {
	return slices.ContainsFunc(st.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodReady && c.Status == v1.ConditionTrue })
}
