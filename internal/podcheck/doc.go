// Package podcheck finds what no node should take a pod with, whoever sent it:
// names that would lead out of the directories they become part of, numbers
// that are no user or group IDs, words that the API does not have, and settings
// of security that contradict each other. A misspelt word would otherwise count
// as the absence of a setting, and so as less protection than was asked for.
//
// [Pod] is for admission, of pods of every source, and for readers of
// manifests: these check more, which an API server has checked for others. It
// takes fields without a value that the API has a default for.
//
// All functions are pure, and take time in proportion to the size of the pod.
// Nothing handed in is changed; errors are few and short, whatever the pod is.
package podcheck
