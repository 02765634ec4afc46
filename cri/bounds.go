package cri

import (
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"
)

// Limits of the values that a Reader returns, whatever the runtime sends. Names and IDs become
// parts of paths in many places. A name or ID that cannot be part of a path counts as missing.
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

	// maxInstances limits the sandboxes, and the containers, of one pod; maxPods
	// limits the pods of a list.
	maxInstances = 4 << 10
	maxPods      = 64 << 10
)

// oneName returns s if s can be the name of a file of at most limit bytes, and otherwise "".
// Control characters are refused too, since names are shown in logs and terminals.
func oneName(s string, limit int) string {
	odd := func(r rune) bool { return r < ' ' || r == 0x7f || r == '/' || r == utf8.RuneError }
	if len(s) > limit || s == "." || s == ".." || strings.ContainsFunc(s, odd) {
		return ""
	}
	return s
}

// podOf returns the pod of a sandbox or container, from its labels. The UID is "" if there is no
// pod. The labels are not trusted, since another program may have set them.
func podOf(labels map[string]string) (uid types.UID, namespace, name string) {
	return types.UID(oneName(labels[LabelPodUID], maxName)),
		oneName(labels[LabelPodNamespace], maxName), oneName(labels[LabelPodName], maxName)
}

// cut returns the first limit bytes of s, or fewer if a character would be cut in two.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return strings.Clone(s[:limit]) // a slice would keep all of s in memory
}

// ours returns m. If m is larger than the labels or annotations of an API object can be, the result
// has only the keys in readBack. The result may be m itself.
func ours(m map[string]string) map[string]string {
	if sizeOf(m) <= maxLabels {
		return m
	}
	out := map[string]string{}
	// Each value has an equal share of the limit, so that a large one cannot displace
	// the pod's UID.
	for _, k := range readBack {
		if v, ok := m[k]; ok && len(v) <= maxLabels/len(readBack) {
			out[k] = v
		}
	}
	return out
}

// sizeOf returns the size of all keys and values in bytes.
func sizeOf(m map[string]string) (size int) {
	for k, v := range m {
		size += len(k) + len(v)
	}
	return size
}

// readBack lists the labels and annotations of containers and sandboxes that this module reads. A
// key that is added to labels.go has to be added here.
var readBack = []string{
	LabelPodName, LabelPodNamespace, LabelPodUID, LabelContainerName,
	AnnotationHash, AnnotationRestartCount, AnnotationTerminationMessagePath, AnnotationTerminationMessagePolicy, AnnotationPreStop,
	AnnotationPorts, AnnotationPodDeletionGracePeriod, AnnotationPodTerminationGracePeriod, AnnotationResources,
	AnnotationLife,
}
