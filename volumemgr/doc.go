// Package volumemgr makes the volumes of pods and takes them down again.
package volumemgr
