package cri

import (
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"
)

// Limits of what a Reader takes over, whatever the runtime says. Names and IDs
// are parts of paths in many places; one that cannot be is taken for none.
const (
	maxName    = 253       // bytes; the longest name of an object of the API
	maxID      = 256       // bytes; those of the usual runtimes have 64
	maxImage   = 4 << 10   // bytes of an image's name
	maxPath    = 4 << 10   // bytes; Linux's PATH_MAX
	maxReason  = 1 << 10   // bytes
	maxMessage = 64 << 10  // bytes; statuses show 12 KiB of it
	maxVersion = 256       // bytes
	maxLabels  = 512 << 10 // bytes of keys and values; the API allows 256 KiB of annotations
	maxMounts  = 4 << 10
	maxGroups  = 1 << 16 // Linux's NGROUPS_MAX

	// maxInstances is how many sandboxes, and how many containers, of one
	// pod are looked at, maxPods how many pods are listed.
	maxInstances = 4 << 10
	maxPods      = 64 << 10
)

// oneName returns s if it can be a name in a path, else "". Control characters are
// refused as well: names end up in logs and in terminals.
func oneName(s string, most int) string {
	odd := func(r rune) bool { return r < ' ' || r == 0x7f || r == '/' || r == utf8.RuneError }
	if len(s) > most || s == "." || s == ".." || strings.ContainsFunc(s, odd) {
		return ""
	}
	return s
}

// podOf reads whose a sandbox or container is; an empty UID is nobody's. Labels are
// all there is: what else runs on the runtime has none of them, or may have made them
// up.
func podOf(labels map[string]string) (uid types.UID, namespace, name string) {
	return types.UID(oneName(labels[LabelPodUID], maxName)),
		oneName(labels[LabelPodNamespace], maxName), oneName(labels[LabelPodName], maxName)
}

// cut returns as much of s as there is room for, and no half character.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return strings.Clone(s[:most]) // lets the rest go
}

// ours returns labels or annotations that are no larger than those of an object of
// the API can be, else those of them that are read back. The map is the answer's own,
// and shared from then on.
func ours(m map[string]string) map[string]string {
	if sizeOf(m) <= maxLabels {
		return m
	}
	out := map[string]string{}
	// Each gets an equal part of the room, so that one of them cannot push out the
	// pod's UID.
	for _, k := range readBack {
		if v, ok := m[k]; ok && len(v) <= maxLabels/len(readBack) {
			out[k] = v
		}
	}
	return out
}

// sizeOf is the size of keys and values in bytes.
func sizeOf(m map[string]string) (size int) {
	for k, v := range m {
		size += len(k) + len(v)
	}
	return size
}

// readBack are the labels and annotations that somebody reads of a container. One
// that is added to labels.go has to be added here.
var readBack = []string{
	LabelPodName, LabelPodNamespace, LabelPodUID, LabelContainerName,
	AnnotationHash, AnnotationRestartCount, AnnotationTerminationMessagePath, AnnotationTerminationMessagePolicy, AnnotationPreStop,
	AnnotationPorts, AnnotationPodDeletionGracePeriod, AnnotationPodTerminationGracePeriod, AnnotationResources,
	AnnotationLife,
}
