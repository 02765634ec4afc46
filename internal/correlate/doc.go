// Package correlate decides which events are combined into one Event object, and which
// events are dropped because an object has too many. The numbers are those of client-go's
// correlator. If more than ten events of one object and reason within ten minutes differ
// only in their message, they are combined. An object may have 25 events, and after these
// one event each five minutes, so that one pod does not displace the events of other
// pods.
package correlate
