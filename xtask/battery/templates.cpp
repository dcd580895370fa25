// Template-heavy code for the compiler: deep instantiation, variants, maps of tuples and regular expressions.
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <regex>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

template <int N> struct Fib { static constexpr unsigned long long value = Fib<N - 1>::value + Fib<N - 2>::value; };
template <> struct Fib<0> { static constexpr unsigned long long value = 0; };
template <> struct Fib<1> { static constexpr unsigned long long value = 1; };

template <int N> struct Record {
    std::array<int, N> numbers{};
    std::string name = std::to_string(N);
    std::optional<std::variant<int, double, std::string>> value;
    template <typename F> auto apply(F f) const { return f(numbers, name, value); }
};

template <int... N> auto records(std::integer_sequence<int, N...>) { return std::make_tuple(Record<N + 1>{}...); }

template <typename Tuple, std::size_t... I> std::size_t total(const Tuple &t, std::index_sequence<I...>)
{
    return (std::get<I>(t).apply([](const auto &n, const auto &s, const auto &v) {
        return std::accumulate(n.begin(), n.end(), std::size_t{0}) + s.size() + (v ? v->index() : 0);
    }) + ...);
}

template <typename K, typename V> struct Index {
    std::map<K, std::vector<V>> sorted;
    std::unordered_map<std::string, std::shared_ptr<V>> hashed;
    void add(K k, V v)
    {
        hashed.emplace(std::to_string(sorted.size()), std::make_shared<V>(v));
        sorted[std::move(k)].push_back(std::move(v));
    }
};

std::size_t everything(const std::string &text)
{
    auto all = records(std::make_integer_sequence<int, 60>{});
    std::size_t sum = total(all, std::make_index_sequence<60>{}) + Fib<80>::value % 1000;
    Index<std::tuple<int, std::string>, std::function<int(int)>> one;
    Index<std::pair<std::string, double>, std::vector<std::map<int, std::string>>> two;
    Index<std::vector<int>, std::variant<std::string, std::vector<double>>> three;
    one.add({1, text}, [&](int x) { return x + int(text.size()); });
    two.add({text, 1.0}, {{{1, text}}});
    three.add({1, 2, 3}, std::vector<double>{1.0});
    std::regex words("([a-z]+)[ ,]*([0-9]{2,4})?");
    for (std::sregex_iterator it(text.begin(), text.end(), words), end; it != end; ++it)
        sum += it->str(1).size();
    std::vector<std::pair<std::string, int>> list{{text, 1}, {"b", 2}};
    std::stable_sort(list.begin(), list.end(), [](const auto &a, const auto &b) { return a.second > b.second; });
    return sum + list.size() + one.sorted.size() + two.sorted.size() + three.sorted.size();
}
