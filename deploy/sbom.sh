#!/usr/bin/env bash
# Writes what a program of Go's is made of, as CycloneDX 1.5 in JSON, from what its linker put into it; it needs nothing but go.
#   deploy/sbom.sh PROGRAM [VERSION] > optimem.cdx.json
set -euo pipefail
program=$1
sum=$(sha256sum <"$program" | cut -d' ' -f1)
go version -m "$program" | awk -v name="$(basename "$program")" -v sum="$sum" -v given="${2-}" '
	function quoted(s) { gsub(/[\\"]/, "\\\\&", s); return "\"" s "\"" }
	NR == 1 { tool = $NF }
	$1 == "path" { path = $2 }
	$1 == "mod" { version = $3 }
	$1 == "dep" || $1 == "=>" {
		if ($1 == "=>") n-- # which takes the place of the one before
		modules[n] = $2; versions[n] = $3; n++
	}
	$1 == "build" && $2 ~ /^(vcs.revision|GOOS|GOARCH|CGO_ENABLED|-tags|-trimpath)=/ {
		split($2, part, "="); settings = settings (settings == "" ? "" : ",") "\n      {\"name\": " quoted("go:" part[1]) ", \"value\": " quoted(substr($2, length(part[1]) + 2)) "}"
	}
	function component(module, version) {
		return "{\"type\": \"library\", \"name\": " quoted(module) ", \"version\": " quoted(version) ", \"purl\": " quoted("pkg:golang/" module "@" version) "}"
	}
	END {
		if (given != "") version = given
		print "{\n  \"bomFormat\": \"CycloneDX\", \"specVersion\": \"1.5\", \"version\": 1,"
		print "  \"metadata\": {\"component\": {\"type\": \"application\", \"name\": " quoted(name) ", \"version\": " quoted(version) ", \"purl\": " quoted("pkg:golang/" path "@" version) ","
		print "    \"hashes\": [{\"alg\": \"SHA-256\", \"content\": " quoted(sum) "}], \"properties\": [" settings "]}},"
		print "  \"components\": ["
		print "    " component("stdlib", tool) (n ? "," : "")
		for (i = 0; i < n; i++) print "    " component(modules[i], versions[i]) (i + 1 < n ? "," : "")
		print "  ]\n}"
	}'
