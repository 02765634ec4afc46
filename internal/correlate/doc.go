// Package correlate decides which events are one Event, and which of an object are too
// many, by the numbers of client-go's correlator: more than ten events of one reason and
// object within ten minutes that differ only in their message are combined, and an object
// can have 25 events, and then one more each five minutes. So one pod does not drive out
// the events of others.
package correlate
