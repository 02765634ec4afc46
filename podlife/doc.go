// Package podlife has the decisions about the life of a pod that several packages
// share: what happens to its containers, why a pod or a container ends or does not start,
// and its grace period.
//
// Everything here is a pure function of its arguments, and every value is plain data: it can be
// compared, logged and stored. The zero value of each type is the safe one: a [Cause] without a
// kind ends nothing sooner than the pod's spec allows.
//
//	d := podlife.Decide(podlife.Knowledge{Pod: pod, Runtime: obs})
//	grace := podlife.Grace(pod, container, podlife.Cause{Kind: podlife.LivenessFailed})
//
// Tier: beta.
package podlife
