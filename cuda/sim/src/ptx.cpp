// What the simulator reads in PTX: the version, the target, and the parameters of the kernels. It does not run it: the
// kernels that run are the same sources compiled for the host.
#include "engine.h"

#include <cstdio>
#include <cstdlib>

namespace ptx {

static size_t size_of(const std::string &type) {
	size_t bits = 0;
	for (size_t i = 0; i < type.size(); i++)
		if (type[i] >= '0' && type[i] <= '9')
			bits = bits * 10 + (type[i] - '0');
	return bits / 8;
}

std::string parse(const char *text, image &to) {
	to.version = to.target = 0;
	kernel *now = nullptr;
	for (const char *p = text; *p;) {
		const char *end = strchr(p, '\n');
		std::string line(p, end ? end - p : strlen(p));
		p = end ? end + 1 : p + line.size();
		size_t first = line.find_first_not_of(" \t");
		if (first == std::string::npos)
			continue;
		line = line.substr(first);
		int major, minor, target;
		if (sscanf(line.c_str(), ".version %d.%d", &major, &minor) == 2)
			to.version = major * 10 + minor;
		else if (sscanf(line.c_str(), ".target sm_%d", &target) == 1)
			to.target = target, to.only = line.find('a', 11) == line.find_first_not_of("0123456789", 11) && line.find('a', 11) != std::string::npos;
		else if (line.rfind(".visible .entry ", 0) == 0) {
			size_t open = line.find('(');
			std::string name = line.substr(16, open == std::string::npos ? open : open - 16);
			now = &to.kernels[name];
			if (line.find(')') != std::string::npos)
				now = nullptr;
		} else if (now && line.rfind(".param ", 0) == 0) {
			// .param .u64 name,   or   .param .align 8 .b8 name[136]
			std::vector<std::string> words;
			size_t at = 0;
			while ((at = line.find_first_not_of(" ,\t", at)) != std::string::npos) {
				size_t stop = line.find_first_of(" ,\t", at);
				words.push_back(line.substr(at, stop == std::string::npos ? stop : stop - at));
				at = stop == std::string::npos ? line.size() : stop;
			}
			size_t type = 1;
			if (words.size() > 3 && words[1] == ".align")
				type = 3;
			if (words.size() < type + 2)
				return "a parameter that cannot be read: " + line;
			size_t count = 1, bracket = words[type + 1].find('[');
			if (bracket != std::string::npos)
				count = strtoull(words[type + 1].c_str() + bracket + 1, nullptr, 10);
			now->parameters.push_back(size_of(words[type]) * count);
		} else if (line[0] == ')' || line[0] == '{')
			now = nullptr;
	}
	return to.version == 0 || to.target == 0 ? "this is no PTX" : "";
}

} // namespace ptx
